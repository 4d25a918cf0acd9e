//! The flags that set what `ferroce::config` knows, and the log.

use std::io;
use std::path::PathBuf;

use anyhow::Result;
use ferroce::config::{Flags, Key, Settings};
use ferroce::frame::fault::Rule;
use ferroce_stack::congestion::Algorithm;
use tracing_subscriber::EnvFilter;

/// The flags of every command that has settings. Their values are judged where all others are.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Settings")]
pub struct SettingFlags {
    /// TOML file with settings, instead of the one FERROCE_CONFIG names
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address of a device; each more is one more device [default: one of this machine's]
    #[arg(long, value_name = "IP")]
    addr: Vec<String>,
    /// Base of the devices' names [default: ferroce]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// What programs that shall reach each other share: a name, or a folder (with a '/')
    #[arg(long, value_name = "NAME")]
    fabric: Option<String>,
    /// Record every frame: pcapng if FILE ends so, else pcap
    #[arg(long, value_name = "FILE")]
    pcap: Option<String>,
    /// What goes wrong on the link, such as 'drop 1% of rc-send; mark ce every 10th write;
    /// corrupt rkey of 1st write-only with icrc fixed'; see docs/faults.md for all of it
    #[arg(long, value_name = "RULES")]
    fault: Vec<String>,
    /// Decides which frames the chances in the rules strike; `random`: another each time, and said
    /// on stderr [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<String>,
    /// Largest path MTU in bytes: 256, 512, 1024, 2048 or 4096 [default: 4096]
    #[arg(long, value_name = "N")]
    mtu: Option<String>,
    /// A peer with ways of its own: rxe-flush=IP, Linux rxe with its ICRC of FLUSH
    #[arg(long, value_name = "QUIRK")]
    quirk: Vec<String>,
    #[arg(long, value_name = "ALGORITHM", help = congestion_help())]
    congestion: Option<String>,
    /// What an address without a GRH means: refuse, or own for the device itself [default: refuse]
    #[arg(long, value_name = "MEANING")]
    no_grh: Option<String>,
    /// What is done about lost packets: go-back-n, or selective-repeat where the peer's device has
    /// it too [default: go-back-n]
    #[arg(long, value_name = "WAY")]
    loss_recovery: Option<String>,
    /// Which events are logged, such as info or ferroce=debug [default: error]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
}

/// The flag of commands that may open a link.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Settings")]
pub struct LinkFlag {
    /// The link to a network: packet:IFACE, xdp:IFACE or udp:ADDR, and options such as
    /// packet:IFACE,vlan=7 (see `ferroce up --help`)
    #[arg(long, value_name = "LINK")]
    link: Option<String>,
}

/// Names every algorithm that there is.
fn congestion_help() -> String {
    let names = Algorithm::NAMES.join(", ");
    format!(
        "How congestion is controlled: off, or one of {names} and parameters, such as \
         dcqcn,line_rate=25000000000,rpg_ai_rate=5; see docs/congestion.md [default: off]"
    )
}

impl SettingFlags {
    /// What these flags, the environment and its file set; from here on events are logged.
    ///
    /// # Errors
    /// For the first value that is not valid, and if the file cannot be read.
    pub fn load(&self) -> Result<Settings> {
        self.load_with(&LinkFlag { link: None })
    }

    /// As [`load`](Self::load), and what `link` sets.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_with(&self, link: &LinkFlag) -> Result<Settings> {
        let joined = |values: &[String], separator: &str| {
            (!values.is_empty()).then(|| values.join(separator))
        };
        let given = [
            (Key::Addr, joined(&self.addr, ",")),
            (Key::Device, self.device.clone()),
            (Key::Fabric, self.fabric.clone()),
            (Key::Pcap, self.pcap.clone()),
            (Key::Fault, joined(&self.fault, "\n")),
            (Key::Seed, self.seed.clone()),
            (Key::Mtu, self.mtu.clone()),
            (Key::Link, link.link.clone()),
            (Key::Quirk, joined(&self.quirk, ",")),
            (Key::Congestion, self.congestion.clone()),
            (Key::NoGrh, self.no_grh.clone()),
            (Key::LossRecovery, self.loss_recovery.clone()),
            (Key::Log, self.log.clone()),
        ];
        let values = given.into_iter().filter_map(|(key, text)| Some((key, text?))).collect();
        let settings = Settings::load_with(&Flags { config: self.config.clone(), values })?;
        let is_random = |rule: &Rule| rule.is_random();
        if self.seed.as_deref() == Some("random") && settings.fault.iter().any(is_random) {
            eprintln!("ferroce: --seed {}", settings.seed);
        }
        let filter = EnvFilter::try_new(&settings.log).map_err(|error| {
            settings.refuse(Key::Log, format!("a filter such as info or ferroce=debug; {error}"))
        })?;
        // Where this process logs already, it goes on as it does.
        let _ =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).try_init();
        Ok(settings)
    }
}
