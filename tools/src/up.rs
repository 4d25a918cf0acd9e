//! `ferroce up`: the gateway of a fabric, which leads to a real network.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anyhow::{Context, Result, bail};
use ferroce::config::Settings;
use ferroce::engine::{self, CmSink, Engine};
use ferroce::gateway::{Gateway, Options};
use ferroce::identity;
use ferroce::link::LinkName;
use ferroce_stack::mad::CmEvent;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::settings::{LinkFlag, SettingFlags};

/// Shown below `ferroce up --help`.
const EXAMPLES: &str = "\
Examples:
  ferroce up --link packet:eth0 &       RoCE v2 frames on eth0 (CAP_NET_RAW)
  ferroce run -- ib_write_bw 10.0.0.2   with any RoCE v2 peer of that network
  ferroce up --link xdp:eth0            the same by AF_XDP, which NICs are fast with
                                        (CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF)
  ferroce up --link xdp:eth0,generic    where the driver's own XDP does not work
  ferroce up --link udp:10.0.0.1        without any rights; 4791 must be free
  ferroce up --link packet:eth0 --addr 10.0.0.1 --addr fd00::1
  ferroce up --link packet:eth0,vlan=7,pcp=3 --addr 10.7.0.1
  ferroce up --link packet:eth0,v1      RoCE v1 rather than v2
  ferroce up --link packet:eth0 --pcap wire.pcapng --fault 'drop 1% of any'

Links: packet:IFACE, xdp:IFACE or udp:ADDR. Options, after commas:
  vlan=N     frames have an 802.1Q tag of VLAN N (1 to 4094); no others are taken
  pcp=N      with this priority (0 to 7); else it is the top three bits of the DSCP
  v1         the fabric's GIDs are RoCE v1's: EtherType 0x8915, no router passes it
  generic    of xdp: the kernel's generic XDP, whatever the driver can do
A link udp:ADDR has no options, as the kernel writes its headers.

Programs of the fabric have the link's first IPv4 address, or those given by
--addr. Of those, the ones that the interface has are shared with the kernel, whose
routes and neighbours are used. The others are the fabric's own (not with udp:):
it answers ARP and NDP for them, and asks itself. If another host has one of them,
that is said, and the address left alone until that host is gone. Next hops are
those of the kernel's routes by the interface, else neighbours.

The path MTU is the largest that fits, or that of --mtu if it is less. Programs
need not be told: `ferroce run` in the same fabric finds the gateway.

--pcap records the frames that pass as they are on the wire, and --fault strikes
them: what is sent before it is recorded, what comes after. To the rules, frames
that are sent are `outgoing`, and those that come `incoming`. docs/faults.md has
the whole language.

Ends with a signal; prints then what it has counted. `ferroce stat` shows the same
meanwhile. Exit status: 0, or 2 if the link cannot be opened or goes away.";

/// Connect the programs of a fabric to a real network.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    link: LinkFlag,
    #[command(flatten)]
    settings: SettingFlags,
}

/// Why a gateway ends.
#[derive(Debug)]
enum End {
    Signal,
    Link(io::Error),
}

/// A gateway, and what ends it.
#[derive(Debug)]
struct Running {
    gateway: Gateway,
    /// The devices are there though no program uses them: who connects is told that nobody listens.
    _hosts: Vec<Engine>,
    ends: Receiver<End>,
    end: Sender<End>,
}

/// Runs until a signal comes or the link is gone.
///
/// # Errors
/// If a setting is wrong, or the link cannot be opened or goes away.
pub fn run(arguments: &Arguments) -> Result<()> {
    let settings = arguments.settings.load_with(&arguments.link)?;
    let running = Running::open(&settings)?;
    let end = running.end.clone();
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot handle signals")?;
    thread::spawn(move || {
        for _ in &mut signals {
            // Who waits for it may have its end already.
            let _ = end.send(End::Signal);
        }
    });
    let mut out = io::stdout();
    // Nobody may be there to be told: the network is needed all the same.
    let _ = writeln!(out, "{}", running.summary(&settings)).and_then(|()| out.flush());
    let end = running.ends.recv()?;
    let _ = writeln!(out, "{}", running.counted());
    match end {
        End::Signal => Ok(()),
        End::Link(error) => Err(error).context("the link is gone"),
    }
}

impl Running {
    /// Opens the gateway that the settings describe. Capture and faults are of the frames that
    /// pass it.
    ///
    /// # Errors
    /// If there is no link in them, or it cannot be opened.
    fn open(settings: &Settings) -> Result<Running> {
        let Some(link) = &settings.link else {
            bail!("no link: give --link packet:IFACE, xdp:IFACE or udp:ADDR");
        };
        Running::start(settings, link).with_context(|| format!("no gateway to {link}"))
    }

    fn start(settings: &Settings, link: &LinkName) -> Result<Running> {
        let Settings { fabric, addr, mtu, seed, fault: faults, pcap, .. } = settings;
        let (end, ends) = mpsc::channel();
        let told = end.clone();
        let (seed, pcap) = (*seed, pcap.as_deref());
        let options = Options { fabric, link, addresses: addr, mtu: *mtu, faults, seed, pcap };
        let ended = move |error| {
            let _ = told.send(End::Link(error));
        };
        let gateway = Gateway::open(&options, ended, |notice| eprintln!("ferroce: {notice}"))?;
        for notice in gateway.notices() {
            eprintln!("ferroce: {notice}");
        }
        let hosts = hosts(settings)?;
        Ok(Running { gateway, _hosts: hosts, ends, end })
    }

    /// One line that says where it leads.
    fn summary(&self, settings: &Settings) -> String {
        let note = self.gateway.note();
        let addresses: Vec<String> = note.addresses.iter().map(ToString::to_string).collect();
        let (link, addresses, mtu) = (&note.link, addresses.join(", "), note.mtu);
        let fabric = settings.fabric.display();
        format!("{link} is up: {addresses}, path MTU {mtu}, fabric {fabric}")
    }

    /// What it has counted, without what has not happened.
    fn counted(&self) -> String {
        let counters = self.gateway.counters();
        let all = counters.iter().chain(counters.lost.iter());
        let counted: Vec<String> = all
            .filter(|&(_, count)| count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        match counted.is_empty() {
            true => "no frame has passed".to_owned(),
            false => counted.join(", "),
        }
    }
}

/// Takes events of connections, of which there are none.
#[derive(Debug)]
struct Nobody;

impl CmSink for Nobody {
    fn deliver(&self, _: CmEvent) {}
}

/// An engine for each device of the fabric, which answers for it where no program does.
fn hosts(settings: &Settings) -> Result<Vec<Engine>> {
    let devices = identity::devices(settings)?;
    let host = |device| -> Result<Engine> {
        // What passes is recorded and struck at the gateway.
        let engine = Engine::open(&engine::Options {
            link: None,
            pcap: None,
            faults: &[],
            ..engine::Options::new(settings, device)
        })?;
        engine.start_cm(Arc::new(Nobody)).context("no connection management")?;
        Ok(engine)
    };
    devices.iter().map(host).collect()
}
