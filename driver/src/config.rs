//! What a user may set, and where each value came from.
//!
//! Every key has a flag, a variable (`FERROCE_` and the key in capitals, `_` for `-`) and a place
//! in one TOML file, which `FERROCE_CONFIG` names. A flag wins over a variable, a variable over the
//! file. An empty value counts as none.
//!
//! ```toml
//! addr = ["192.0.2.1", "192.0.2.2"]  # one device each; or one text with commas
//! device = "ferroce"                 # base of the devices' names: ferroce0, ferroce1
//! fabric = "lab"                     # a name, or a folder if it has a '/'
//! pcap = "run.pcapng"                # record every frame
//! fault = ["drop 1% of rc-send"]     # see `frame::rule`; or one text, rules parted by ';'
//! seed = 7                           # decides all chance in faults; or "random"
//! mtu = 4096                         # bytes
//! link = "packet:eth0"               # to a network; see `link::LinkName`
//! quirk = ["rxe-flush=192.0.2.7"]    # peers with ways of their own; see `quirk::Quirk`
//! congestion = "dcqcn"               # or "swift", "timely", "off", …; parameters with commas
//! no-grh = "refuse"                  # addresses without a GRH: "refuse", or "own": see `NoGrh`
//! loss-recovery = "go-back-n"        # or "selective-repeat", between two of ours
//! log = "warn"                       # a filter such as "info,ferroce::engine=trace"
//! ```

mod error;
mod key;

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use ferroce_stack::LossRecovery;
use ferroce_stack::congestion;
use ferroce_stack::verbs::Mtu;
use nix::unistd::Uid;
use toml::{Table, Value};

use crate::frame::rule::Rule;
use crate::link::LinkName;
use crate::quirk::Quirk;

pub use error::ConfigError;
pub use key::Key;

/// The variable that names the file.
pub const CONFIG_VARIABLE: &str = "FERROCE_CONFIG";

/// The longest base of a device's name: with three digits it fits into the 64 bytes verbs give it.
const MAX_DEVICE_NAME: usize = 60;

/// The most addresses, and so devices, of one process.
const MAX_DEVICES: usize = 256;

/// A file is shorter than so many bytes.
const MAX_FILE: u64 = 1 << 20;

/// What an address without a GRH means (`is_global` 0 in `ibv_ah_attr`). InfiniBand programs may
/// address a peer in their subnet by its LID alone; Ethernet has no LIDs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoGrh {
    /// Nothing: it is refused, as by RoCE hardware.
    #[default]
    Refuse,
    /// The device itself: two processes that share a device reach each other so. qperf without
    /// rdma_cm needs it.
    Own,
}

impl NoGrh {
    /// Its name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            NoGrh::Refuse => "refuse",
            NoGrh::Own => "own",
        }
    }
}

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// This file.
    File(PathBuf),
    /// This variable.
    Variable(&'static str),
    /// This flag.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "file {}", path.display()),
            Source::Variable(name) => write!(f, "variable {name}"),
            Source::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// A value as text, in the form its variable takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value; empty if there is none.
    pub text: String,
    /// Where it came from.
    pub source: Source,
}

/// What flags set.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// The file, instead of the one `FERROCE_CONFIG` names.
    pub config: Option<PathBuf>,
    /// Values, in the form their variables take.
    pub values: Vec<(Key, String)>,
}

/// All settings. `Settings::default()` is what holds where nothing is set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses, one device each; empty: one device, with an address of this machine.
    pub addr: Vec<IpAddr>,
    /// Base of the devices' names.
    pub device: String,
    /// The fabric's folder, absolute.
    pub fabric: PathBuf,
    /// Where frames are recorded, absolute.
    pub pcap: Option<PathBuf>,
    /// What goes wrong on the link.
    pub fault: Vec<Rule>,
    /// Decides all chance in `fault`.
    pub seed: u64,
    /// Largest path MTU; none: the largest the link takes.
    pub mtu: Option<Mtu>,
    /// The link to a network: the first process that opens a device opens it too, unless the fabric
    /// has a gateway. Processes that use another's need not say it.
    pub link: Option<LinkName>,
    /// Peers that depart from the standard.
    pub quirk: Vec<Quirk>,
    /// How congestion is controlled; none: not at all.
    pub congestion: Option<congestion::Config>,
    /// What addresses without a GRH mean.
    pub no_grh: NoGrh,
    /// What is done about lost packets.
    pub loss_recovery: LossRecovery,
    /// Which events are logged, in the syntax of `tracing_subscriber::EnvFilter`. A library must
    /// not chat: unless set, only what keeps a device from working at all. Whoever makes the
    /// filter finds out whether it is one: see [`refuse`](Settings::refuse).
    pub log: String,
    entries: [Entry; Key::ALL.len()],
}

impl Default for Settings {
    fn default() -> Settings {
        let entry = Entry { text: String::new(), source: Source::Default };
        let mut settings = Settings {
            addr: Vec::new(),
            device: "ferroce".to_owned(),
            fabric: fabric_folder("default"),
            pcap: None,
            fault: Vec::new(),
            seed: 1,
            mtu: None,
            link: None,
            quirk: Vec::new(),
            congestion: None,
            no_grh: NoGrh::default(),
            loss_recovery: LossRecovery::default(),
            log: "error".to_owned(),
            entries: std::array::from_fn(|_| entry.clone()),
        };
        for key in Key::ALL {
            settings.entries[key as usize].text = settings.text(key, "");
        }
        settings
    }
}

impl Settings {
    /// What the environment and its file set.
    ///
    /// # Errors
    /// For the first value that is not valid, and if the file cannot be read.
    pub fn load() -> Result<Settings, ConfigError> {
        Settings::load_with(&Flags::default())
    }

    /// What `flags`, the environment and the file set.
    ///
    /// # Errors
    /// As [`load`](Settings::load).
    pub fn load_with(flags: &Flags) -> Result<Settings, ConfigError> {
        Settings::layered(flags, |name| env::var_os(name))
    }

    /// A value as it was loaded, and where it came from.
    pub fn entry(&self, key: Key) -> &Entry {
        &self.entries[key as usize]
    }

    /// The error that the value of `key` is not valid; `expected` says what would be.
    pub fn refuse(&self, key: Key, expected: impl Into<String>) -> ConfigError {
        let Entry { text, source } = self.entry(key).clone();
        ConfigError::Value { key, value: text, source, expected: expected.into() }
    }

    fn layered(
        flags: &Flags,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Settings, ConfigError> {
        let named = variable(CONFIG_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
        let file = flags.config.clone().or(named);
        let table = file.as_deref().map(read_file).transpose()?.unwrap_or_default();
        let mut settings = Settings::default();
        for key in Key::ALL {
            let given = flags.values.iter().rev().find(|(other, _)| *other == key);
            let flag = given.map(|(_, text)| text.clone()).filter(|text| !text.is_empty());
            let set = match (flag, variable_text(key, &variable)?, &file) {
                (Some(text), ..) => Some((text, Source::Flag(key.flag()))),
                (_, Some(text), _) => Some((text, Source::Variable(key.variable()))),
                (_, _, Some(path)) => {
                    file_text(key, &table, path)?.map(|text| (text, Source::File(path.clone())))
                }
                _ => None,
            };
            if let Some((text, source)) = set {
                settings.set(key, text, source)?;
            }
        }
        Ok(settings)
    }

    fn set(&mut self, key: Key, text: String, source: Source) -> Result<(), ConfigError> {
        // What a file says of paths is relative to the file.
        let base = match &source {
            Source::File(path) => path.parent().unwrap_or(Path::new("")).to_owned(),
            _ => PathBuf::new(),
        };
        let outcome = match key {
            Key::Addr => parse_addr(&text).map(|addr| self.addr = addr),
            Key::Device => parse_device(&text).map(|name| self.device = name),
            Key::Fabric => parse_fabric(&text, &base).map(|folder| self.fabric = folder),
            Key::Pcap => absolute(&base, &text).map(|path| self.pcap = Some(path)),
            Key::Fault => parse_fault(&text).map(|rules| self.fault = rules),
            Key::Seed => parse_seed(&text).map(|seed| self.seed = seed),
            Key::Mtu => parse_mtu(&text).map(|mtu| self.mtu = Some(mtu)),
            Key::Link => parse_link(&text).map(|link| self.link = Some(link)),
            Key::Quirk => parse_quirk(&text).map(|quirk| self.quirk = quirk),
            Key::Congestion => parse_congestion(&text).map(|control| self.congestion = control),
            Key::NoGrh => parse_no_grh(&text).map(|meaning| self.no_grh = meaning),
            Key::LossRecovery => parse_loss_recovery(&text).map(|it| self.loss_recovery = it),
            Key::Log => {
                self.log.clone_from(&text);
                Ok(())
            }
        };
        match outcome {
            Ok(()) => {
                self.entries[key as usize] = Entry { text: self.text(key, &text), source };
                Ok(())
            }
            Err(expected) => Err(ConfigError::Value { key, value: text, source, expected }),
        }
    }

    /// The value of `key` in the form its variable takes; `given` is how it was set.
    fn text(&self, key: Key, given: &str) -> String {
        match key {
            Key::Addr => with_commas(&self.addr),
            Key::Device => self.device.clone(),
            Key::Fabric => self.fabric.display().to_string(),
            Key::Pcap => self.pcap.as_ref().map_or(String::new(), |p| p.display().to_string()),
            Key::Fault => given.to_owned(),
            Key::Seed => self.seed.to_string(),
            Key::Mtu => self.mtu.map_or(String::new(), |mtu| mtu.bytes().to_string()),
            Key::Link => self.link.as_ref().map_or(String::new(), LinkName::to_string),
            Key::Quirk => with_commas(&self.quirk),
            Key::Congestion => {
                self.congestion.as_ref().map_or("off".to_owned(), congestion::Config::to_string)
            }
            Key::NoGrh => self.no_grh.name().to_owned(),
            Key::LossRecovery => self.loss_recovery.name().to_owned(),
            Key::Log => self.log.clone(),
        }
    }
}

fn with_commas(values: &[impl ToString]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(",")
}

fn variable_text(
    key: Key,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<String>, ConfigError> {
    let Some(value) = variable(key.variable()).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let wrong = |value: OsString| ConfigError::Value {
        key,
        value: value.to_string_lossy().into_owned(),
        source: Source::Variable(key.variable()),
        expected: "text in UTF-8".to_owned(),
    };
    value.into_string().map(Some).map_err(wrong)
}

fn read_file(path: &Path) -> Result<Table, ConfigError> {
    let unreadable = |error| ConfigError::File { path: path.to_owned(), error };
    let mut text = String::new();
    let mut file = File::open(path).map_err(unreadable)?.take(MAX_FILE);
    file.read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 == MAX_FILE {
        return Err(unreadable(io::Error::other("longer than a configuration")));
    }
    let table: Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax {
        path: path.to_owned(),
        reason: error.to_string().trim_end().to_owned(),
    })?;
    let known = |name: &str| Key::ALL.iter().any(|key| key.name() == name);
    match table.keys().find(|name| !known(name)) {
        Some(name) => Err(ConfigError::UnknownKey {
            path: path.to_owned(),
            key: name.clone(),
            nearest: nearest_key(name),
        }),
        None => Ok(table),
    }
}

/// The key somebody who wrote `name` is likely to have meant.
fn nearest_key(name: &str) -> Option<Key> {
    let name = name.to_lowercase();
    let likeness = |key: &Key| strsim::jaro_winkler(key.name(), &name);
    let best = Key::ALL.into_iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    best.filter(|key| likeness(key) > 0.75)
}

/// The value of `key` in the file, in the form its variable takes.
fn file_text(key: Key, table: &Table, path: &Path) -> Result<Option<String>, ConfigError> {
    let Some(value) = table.get(key.name()) else { return Ok(None) };
    let separator = match key {
        Key::Addr | Key::Quirk => Some(","),
        Key::Fault => Some("\n"),
        _ => None,
    };
    let text = match (value, separator) {
        (Value::Array(values), Some(separator)) => {
            let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
            texts.map(|texts| texts.join(separator))
        }
        (Value::String(text), _) => Some(text.clone()),
        (Value::Integer(number), _) if matches!(key, Key::Seed | Key::Mtu) => {
            Some(number.to_string())
        }
        _ => None,
    };
    let expected = match key {
        Key::Addr | Key::Fault | Key::Quirk => "a text or a list of texts",
        Key::Seed | Key::Mtu => "a whole number",
        Key::Device
        | Key::Fabric
        | Key::Pcap
        | Key::Link
        | Key::Congestion
        | Key::NoGrh
        | Key::LossRecovery
        | Key::Log => "a text",
    };
    let wrong = || ConfigError::Value {
        key,
        value: value.to_string(),
        source: Source::File(path.to_owned()),
        expected: expected.to_owned(),
    };
    Ok(Some(text.ok_or_else(wrong)?).filter(|text| !text.is_empty()))
}

fn parse_addr(text: &str) -> Result<Vec<IpAddr>, String> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for word in text.split(',').map(str::trim) {
        let Ok(address) = word.parse::<IpAddr>() else {
            return Err("IPv4 or IPv6 addresses, with commas between them".to_owned());
        };
        let address = address.to_canonical();
        let fault = match address {
            IpAddr::V4(ip) if ip.is_broadcast() => "no broadcast address",
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                "no link-local address: each device has its own already"
            }
            _ if address.is_unspecified() => "the address of one host, not of any",
            _ if address.is_multicast() => "the address of one host, not of a group",
            _ if addresses.contains(&address) => "each address once",
            _ => "",
        };
        if !fault.is_empty() {
            return Err(format!("{fault} ({address})"));
        }
        addresses.push(address);
    }
    match addresses.len() {
        ..=MAX_DEVICES => Ok(addresses),
        count => Err(format!("at most {MAX_DEVICES} addresses, not {count}")),
    }
}

fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    text.bytes().all(allowed) && !text.starts_with('.') && text.len() <= MAX_DEVICE_NAME
}

fn parse_device(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a name of at most {MAX_DEVICE_NAME} letters, digits, '_', '-' and '.', to which the \
             device's number is added"
        )),
    }
}

/// The folder of the fabric of this name, one of the user's own.
fn fabric_folder(name: &str) -> PathBuf {
    PathBuf::from(format!("/dev/shm/ferroce-{}/{name}", Uid::effective()))
}

fn parse_fabric(text: &str, base: &Path) -> Result<PathBuf, String> {
    if text.contains('/') {
        let folder = absolute(base, text)?;
        let parents = folder.components().any(|part| part == Component::ParentDir);
        // Members that name one folder in two ways would still meet; the root is no fabric.
        return match folder.parent() {
            Some(_) if !parents => Ok(folder),
            _ => Err("a folder other than '/', without '..'".to_owned()),
        };
    }
    match is_name(text) {
        true => Ok(fabric_folder(text)),
        false => Err("a name of letters, digits, '_', '-' and '.', or a folder (with a '/' in it)"
            .to_owned()),
    }
}

fn absolute(base: &Path, text: &str) -> Result<PathBuf, String> {
    let no_folder = |error| format!("an absolute path, as the current folder is unknown: {error}");
    std::path::absolute(base.join(text)).map_err(no_folder)
}

fn parse_fault(text: &str) -> Result<Vec<Rule>, String> {
    Rule::parse_all(&text.replace(';', "\n")).map_err(|error| format!("fault rules; {error}"))
}

fn parse_seed(text: &str) -> Result<u64, String> {
    match text.trim() {
        // The standard library seeds its maps from the system's randomness.
        "random" => Ok(RandomState::new().hash_one(())),
        text => {
            text.parse().map_err(|_| format!("a whole number from 0 to {}, or 'random'", u64::MAX))
        }
    }
}

fn parse_mtu(text: &str) -> Result<Mtu, String> {
    let bytes = text.trim().parse().ok();
    let sizes = "256, 512, 1024, 2048 or 4096 (bytes)";
    bytes.and_then(Mtu::from_bytes).ok_or_else(|| sizes.to_owned())
}

fn parse_link(text: &str) -> Result<LinkName, String> {
    text.parse().map_err(str::to_owned)
}

fn parse_quirk(text: &str) -> Result<Vec<Quirk>, String> {
    text.split(',').map(Quirk::from_str).collect::<Result<_, _>>().map_err(str::to_owned)
}

fn parse_congestion(text: &str) -> Result<Option<congestion::Config>, String> {
    match text.trim() {
        "off" => Ok(None),
        text => text.parse().map(Some).map_err(|error: congestion::ParameterError| {
            format!("off, or an algorithm and its parameters; {error}")
        }),
    }
}

fn parse_no_grh(text: &str) -> Result<NoGrh, String> {
    let known = [NoGrh::Refuse, NoGrh::Own].into_iter().find(|known| known.name() == text.trim());
    known.ok_or_else(|| "refuse or own".to_owned())
}

fn parse_loss_recovery(text: &str) -> Result<LossRecovery, String> {
    let known = LossRecovery::named(text.trim());
    known.ok_or_else(|| LossRecovery::ALL.map(LossRecovery::name).join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(flags: &[(Key, &str)], variables: &[(&str, &str)]) -> Result<Settings, ConfigError> {
        let values = flags.iter().map(|(key, text)| (*key, (*text).to_owned())).collect();
        let flags = Flags { config: None, values };
        let variable = |name: &str| {
            let set = variables.iter().find(|(other, _)| *other == name);
            set.map(|(_, value)| OsString::from(value))
        };
        Settings::layered(&flags, variable)
    }

    /// A configuration file that is removed at the end.
    struct TempFile(PathBuf);

    impl TempFile {
        fn new(name: &str, text: &str) -> TempFile {
            let name = format!("ferroce-config-{}-{name}.toml", std::process::id());
            let path = env::temp_dir().join(name);
            std::fs::write(&path, text).unwrap();
            TempFile(path)
        }

        fn path(&self) -> &str {
            self.0.to_str().unwrap()
        }

        fn load(&self) -> Result<Settings, ConfigError> {
            load(&[], &[(CONFIG_VARIABLE, self.path())])
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn with_nothing_set_all_are_defaults() {
        let settings = load(&[], &[("FERROCE_ADDR", "")]).unwrap();
        assert!(Key::ALL.iter().all(|key| settings.entry(*key).source == Source::Default));
        let uid = Uid::effective();
        assert_eq!(settings.fabric, PathBuf::from(format!("/dev/shm/ferroce-{uid}/default")));
        assert_eq!((settings.device.as_str(), settings.mtu), ("ferroce", None));
        assert_eq!(settings.entry(Key::Seed).text, "1");
    }

    #[test]
    fn a_flag_wins_over_a_variable_over_the_file() {
        let file = TempFile::new("layers", "mtu = 256\nseed = 5\ndevice = 'card'");
        let config = (CONFIG_VARIABLE, file.path());
        let variables = [config, ("FERROCE_MTU", "512"), ("FERROCE_SEED", "6")];
        let settings = load(&[(Key::Mtu, "1024")], &variables).unwrap();
        let value = |key| {
            let Entry { text, source } = settings.entry(key);
            (text.as_str(), source.clone())
        };
        assert_eq!(value(Key::Mtu), ("1024", Source::Flag("--mtu")));
        assert_eq!(value(Key::Seed), ("6", Source::Variable("FERROCE_SEED")));
        assert_eq!(value(Key::Device), ("card", Source::File(file.0.clone())));
        assert_eq!((settings.mtu, settings.seed), (Some(Mtu::Mtu1024), 6));
    }

    #[test]
    fn a_random_seed_is_another_each_time_and_told_as_a_number() {
        let seed = || load(&[(Key::Seed, "random")], &[]).unwrap();
        let [first, second] = [seed(), seed()];
        assert_ne!(first.seed, second.seed);
        assert_eq!(first.entry(Key::Seed).text, first.seed.to_string());
    }

    #[test]
    fn every_key_in_a_file() {
        let file = TempFile::new(
            "all",
            "addr = ['192.0.2.1', 'fd00::1']\ndevice = 'rxe'\nfabric = 'lab'\npcap = 'a.pcap'\n\
             fault = ['drop 1st ack', 'drop 2nd ack']\nseed = 9\nmtu = 2048\nno-grh = 'own'\n\
             loss-recovery = 'selective-repeat'\n\
             link = 'packet:eth0'\nquirk = ['rxe-flush=192.0.2.7', 'rxe-flush=fd00::7']\n\
             log = 'debug'\ncongestion = 'dcqcn,rpg_ai_rate=7'",
        );
        let settings = file.load().unwrap();
        assert_eq!(settings.entry(Key::Addr).text, "192.0.2.1,fd00::1");
        assert_eq!((settings.addr.len(), settings.fault.len()), (2, 2));
        assert!(settings.fabric.ends_with("lab"));
        assert_eq!(settings.pcap, Some(file.0.with_file_name("a.pcap")));
        assert_eq!((settings.mtu, settings.log.as_str()), (Some(Mtu::Mtu2048), "debug"));
        assert_eq!(settings.no_grh, NoGrh::Own);
        let control = settings.congestion.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(control.starts_with("dcqcn,line_rate=0,"), "{control}");
        assert!(control.contains(",rpg_ai_rate=7,"), "{control}");
        assert_eq!(settings.entry(Key::Congestion).text, control);
        assert_eq!(settings.loss_recovery, LossRecovery::SelectiveRepeat);
        assert_eq!(settings.entry(Key::Quirk).text, "rxe-flush=192.0.2.7,rxe-flush=fd00::7");
        assert_eq!(settings.link, "packet:eth0".parse().ok());
    }

    #[test]
    fn a_wrong_file_names_what_is_wrong() {
        let table = [
            ("adr = '192.0.2.1'", "unknown key 'adr'; did you mean 'addr'?"),
            ("zzz = 1", "unknown key 'zzz'; there are addr, device, fabric"),
            ("mtu = 1500", "mtu is '1500' (file "),
            ("mtu = true", "mtu is 'true' (file "),
            ("addr = [1]", "addr is '[1]' (file "),
            ("seed = -1", "seed is '-1' (file "),
            ("mtu 3", "is not TOML: "),
        ];
        for (number, (text, expected)) in table.into_iter().enumerate() {
            let error = TempFile::new(&number.to_string(), text).load().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let error = load(&[], &[(CONFIG_VARIABLE, "/nowhere/x.toml")]).unwrap_err().to_string();
        assert!(error.contains("/nowhere/x.toml: No such file"), "{error}");
    }

    #[test]
    fn a_wrong_value_names_key_value_source_and_remedy() {
        let table = [
            (Key::Addr, "192.0.2", "IPv4 or IPv6 addresses"),
            (Key::Addr, "192.0.2.1,::ffff:192.0.2.1", "each address once (192.0.2.1)"),
            (Key::Addr, "224.0.0.1", "not of a group"),
            (Key::Addr, "::", "not of any"),
            (Key::Addr, "fe80::1", "no link-local address"),
            (Key::Device, "a/b", "a name of at most 60"),
            (Key::Fabric, "a b", "a name of letters"),
            (Key::Fabric, "..", "a name of letters"),
            (Key::Fabric, "/a/../b", "without '..'"),
            (Key::Fault, "drop 1st ack; drop it", "'it'"),
            (Key::Seed, "x", "a whole number"),
            (Key::Mtu, "1500", "256, 512, 1024, 2048 or 4096 (bytes)"),
            (Key::Link, "eth0", "packet:IFACE, xdp:IFACE or udp:ADDR"),
            (Key::Quirk, "rxe-flush", "rxe-flush= and the address"),
            (Key::Quirk, "rxe-flush=192.0.2.7,slow=fd00::7", "rxe-flush= and the address"),
            (Key::Congestion, "red", "off, or an algorithm and its parameters; no algorithm 'red'"),
            (Key::Congestion, "dcqcn,rpg_gd=1", "rpg_gd is a whole number from 10 to 11"),
            (Key::NoGrh, "yes", "refuse or own"),
            (Key::LossRecovery, "none", "go-back-n or selective-repeat"),
        ];
        for (key, value, expected) in table {
            let error = load(&[], &[(key.variable(), value)]).unwrap_err().to_string();
            let start = format!("{} is '{value}' (variable {})", key.name(), key.variable());
            assert!(error.starts_with(&start) && error.contains(expected), "{error}");
        }
        let error = load(&[(Key::Mtu, "9")], &[]).unwrap_err().to_string();
        assert_eq!(error, "mtu is '9' (flag --mtu): expected 256, 512, 1024, 2048 or 4096 (bytes)");
    }
}
