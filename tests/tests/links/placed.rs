//! FLUSH and ATOMIC WRITE with rxe, which knows them since 6.2 and computes the ICRC of FLUSH in a
//! way of its own. The distribution's programs know neither, so our side is this very process.

use std::error::Error;
use std::fs;
use std::time::Duration;

use ferroce::config::Settings;
use ferroce::quirk::Quirk;
use ferroce::verbs::{Access, QpType};
use ferroce::{ConnectOptions, Context, QpOptions, SendRequest};

use ferroce_tests::links::{Gateway, Lab, has_lost};
use ferroce_tests::programs::{Running, limited};

const SCRIPT: &str = include_str!("../../src/links/placed.py");
const PYTHON: &str = "/usr/bin/python3";

const SIZE: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);
const LIFE: Duration = Duration::from_secs(200);

/// WRITE, FLUSH, ATOMIC WRITE: rxe to us, we to rxe.
pub fn both_ways(lab: &Lab) -> Result<(), Box<dyn Error>> {
    let capture = lab.home().join("placed.pcapng");
    let path = capture.to_str().ok_or("a path of ours")?;
    let gateway =
        Gateway::start(&mut lab.ferroce(), "packet:h0", &["--addr", Lab::HOST, "--pcap", path]);
    let outcome = exchange(lab);
    let ended = gateway.end();
    let decoded = limited(lab.ferroce().args(["decode", "--verify"]).arg(path));
    outcome.map_err(|error| format!("{error}\n{ended}\n{decoded}"))?;
    assert!(!has_lost(&ended), "{ended}");
    assert!(decoded.out.contains("rxe_flush 1"), "{decoded}");
    assert!(decoded.out.contains("no violation"), "{decoded}");
    Ok(())
}

fn exchange(lab: &Lab) -> Result<(), Box<dyn Error>> {
    let mut settings = Settings::default();
    settings.fabric = lab.fabric();
    settings.addr = vec![Lab::HOST.parse()?];
    settings.quirk = vec![Quirk::RxeFlush(Lab::GUEST.parse()?)];
    let context = Context::open(&settings)?;
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::FLUSH_GLOBAL;
    let memory = pd.register_zeroed(SIZE, access)?;
    let qp = pd.create_qp(&QpOptions::new(QpType::Rc, &cq))?;

    let script = lab.home().join("placed.py");
    fs::write(&script, SCRIPT)?;
    let mut guest = lab.guest(PYTHON);
    guest.arg(lab.put(&script));
    guest.args([qp.endpoint().to_string(), memory.remote().to_string()]);
    let mut guest = Running::start_within(&mut guest, LIFE);
    guest.wait_for(|guest| guest.out().contains('\n'));
    let out = guest.out();
    let mut words = out.split_whitespace();
    let mut word = || words.next().ok_or_else(|| format!("{out}{}", guest.err()));
    let (peer, remote) = (word()?.parse()?, word()?.parse()?);
    qp.connect(&peer, &ConnectOptions { timeout: 18, ..ConnectOptions::default() })?;

    if !guest.wait_for(|guest| guest.out().contains("done")) {
        return Err(format!("{}{}", guest.out(), guest.err()).into());
    }
    let mut expected: Vec<u8> = (0..SIZE).map(|index| (index % 251) as u8).collect();
    expected[8..16].copy_from_slice(b"from rxe");
    let mut bytes = vec![0; SIZE];
    memory.read_at(0, &mut bytes)?;
    assert_eq!(bytes, expected, "what rxe has written here");

    let word = u64::from_ne_bytes(*b"from us.");
    qp.post_send(&SendRequest::write(1, &[memory.slice(..)?], remote))?;
    qp.post_send(&SendRequest::flush(2, remote, Access::FLUSH_GLOBAL))?;
    qp.post_send(&SendRequest::atomic_write(3, remote.slice(8..16)?, word))?;
    let back = pd.register_zeroed(SIZE, Access::LOCAL_WRITE)?;
    qp.post_send(&SendRequest::read(4, &[back.slice(..)?], remote))?;
    for wr_id in 1..=4 {
        assert_eq!(cq.wait(PATIENCE)?.ok()?.wr_id, wr_id);
    }
    expected[8..16].copy_from_slice(b"from us.");
    back.read_at(0, &mut bytes)?;
    assert_eq!(bytes, expected, "what is in rxe's memory");
    guest.kill();
    let _ = guest.wait();
    Ok(())
}
