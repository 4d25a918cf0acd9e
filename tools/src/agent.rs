//! `ferroce conform-agent`.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Result;
use ferroce_agent::Options;

/// Call verbs for a `ferroce conform` elsewhere
///
/// Runs on the machine that is judged and calls the verbs of its libibverbs for a runner, which
/// plays the peer. `ferroce run -- ferroce conform-agent` is our own library's. Whoever can connect
/// to it can call verbs here: let it listen beyond this machine only on a network of trust.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Arguments {
    /// Where the runner connects to, by TCP
    #[arg(long, value_name = "ADDR:PORT", default_value_t = here())]
    listen: SocketAddr,
    /// The device to use [default: the first]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// The address to use, as its place in the device's table of GIDs [default: the one the runner
    /// asks for]
    #[arg(long, value_name = "N")]
    gid_index: Option<u8>,
}

fn here() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), ferroce_conform::agent::PORT)
}

/// Serves runners until it is ended.
///
/// # Errors
/// If there is no library or device to use, or it cannot listen.
pub fn run(arguments: &Arguments) -> Result<()> {
    let options = Options {
        listen: arguments.listen,
        device: arguments.device.clone(),
        gid_index: arguments.gid_index,
    };
    let ready = |address: SocketAddr, device: &str| {
        // Nobody may be there to be told.
        let _ = writeln!(io::stdout(), "{device} listens at {address}");
    };
    match ferroce_agent::serve(&options, ready) {
        Ok(never) => match never {},
        Err(error) => Err(error.into()),
    }
}
