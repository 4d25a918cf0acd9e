//! rdma-core's own test-suite, as Debian ships it, case by case against checked-in lists.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ferroce_tests::programs::{Fabric, Installed, have, is_root, limited};

const SUITE: &str = "/usr/share/doc/rdma-core/tests";
/// The one for which Debian has pyverbs.
const PYTHON: &str = "/usr/bin/python3";
const PASSES: &str = include_str!("../../pyverbs/passes.txt");
const SKIPS: &str = include_str!("../../pyverbs/skips.txt");
/// Those for devices of vendors.
const NOT_GENERIC: [&str; 3] = ["mlx5", "efa", "cuda"];
const AT_ONCE: usize = 2;
/// Those that the suite gives to root alone, and that pass.
const AS_ROOT: [&str; 10] = [
    "test_flow.FlowTest.test_eth_spec_flow_traffic",
    "test_flow.FlowTest.test_ipv4_spec_flow_traffic",
    "test_flow.FlowTest.test_ipv6_spec_flow_traffic",
    "test_flow.FlowTest.test_tcp_spec_flow_traffic",
    "test_flow.FlowTest.test_udp_spec_flow_traffic",
    "test_qp.QPTest.test_create_raw_qp_ex_no_attr",
    "test_qp.QPTest.test_create_raw_qp_ex_with_attr",
    "test_qp.QPTest.test_create_raw_qp_no_attr",
    "test_qp.QPTest.test_create_raw_qp_with_attr",
    "test_qp.QPTest.test_query_raw_qp",
];

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Skipped,
}

fn lines(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.lines().filter(|line| !line.starts_with('#') && !line.is_empty())
}

fn have_suite() -> bool {
    let has_pyverbs = Path::new("/usr/lib/python3/dist-packages/pyverbs").is_dir();
    have(PYTHON, "python3") && (has_pyverbs || have("pyverbs", "python3-pyverbs rdma-core"))
}

#[test]
fn what_passes_as_root_passes() {
    if !is_root() {
        println!("skipped: the suite gives these cases to root alone");
        return;
    }
    if !have_suite() {
        return;
    }
    let fabric = Fabric::new();
    let script = unpack(&fabric.home());
    // The other one belongs to the user without rights.
    let own = format!("/dev/shm/ferroce-fabric-of-root-{}", std::process::id());
    for case in AS_ROOT {
        let mut command = fabric.command(&Installed::get().ferroce);
        command.env("FERROCE_FABRIC", &own).args(["run", "--", PYTHON]).arg(&script);
        let outcome = run(command.env("PYTHONDONTWRITEBYTECODE", "1"), case);
        assert_eq!(outcome, Ok(Outcome::Passed), "{case}");
    }
    fs::remove_dir_all(own).unwrap();
}

#[test]
fn what_passed_passes() {
    if !have_suite() {
        return;
    }
    let fabric = Fabric::new();
    let script = unpack(&fabric.home());
    let passes: BTreeSet<&str> = lines(PASSES).collect();
    let skips: BTreeSet<&str> =
        lines(SKIPS).map(|line| line.split_once(": ").expect("a reason").0).collect();
    let all = cases(&fabric, &script);
    let next = AtomicUsize::new(0);
    let connects = Mutex::new(());
    let run_some = || {
        let mut faults = Vec::new();
        while let Some(case) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
            // They listen at one and the same port.
            let in_turn = case.starts_with("test_rdmacm.").then(|| connects.lock());
            let outcome = run(&mut python(&fabric, &script), case);
            drop(in_turn);
            let fault = match outcome {
                Ok(Outcome::Passed) if passes.contains(&case[..]) => continue,
                Ok(_) if skips.contains(&case[..]) => continue,
                Ok(outcome) => format!("{case}: {outcome:?}, which no list says"),
                Err(said) => format!("{case}: {said}"),
            };
            faults.push(fault);
        }
        faults
    };
    let faults: Vec<String> = thread::scope(|scope| {
        let threads = [(); AT_ONCE].map(|()| scope.spawn(run_some));
        threads.into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
    });
    assert!(faults.is_empty(), "{} cases\n{}", faults.len(), faults.join("\n"));
    let known: BTreeSet<&str> = all.iter().map(String::as_str).collect();
    let gone: Vec<_> = passes.union(&skips).filter(|case| !known.contains(*case)).collect();
    assert!(gone.is_empty(), "listed, but not in the suite: {gone:?}");
}

/// The suite's script, unpacked below `home`.
fn unpack(home: &Path) -> PathBuf {
    let folder = home.join("suite/tests");
    fs::create_dir_all(&folder).unwrap();
    for entry in fs::read_dir(SUITE).expect("package rdma-core has it") {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match name.strip_suffix(".gz") {
            None => drop(fs::copy(&path, folder.join(name)).unwrap()),
            Some(name) => {
                let target = File::create(folder.join(name)).unwrap();
                let status = Command::new("gzip").arg("-dc").arg(&path).stdout(target).status();
                assert!(status.unwrap().success(), "{name}");
            }
        }
    }
    folder.join("run_tests.py")
}

fn python(fabric: &Fabric, script: &Path) -> Command {
    let mut command = fabric.run(PYTHON);
    command.arg(script).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The names of the generic cases.
fn cases(fabric: &Fabric, script: &Path) -> Vec<String> {
    let said = limited(python(fabric, script).arg("--list-tests"));
    said.check().unwrap();
    let generic = |name: &&str| !NOT_GENERIC.iter().any(|vendor| name.contains(vendor));
    let names = said.out.lines().filter_map(|line| line.strip_prefix("tests."));
    names.filter(generic).map(str::to_owned).collect()
}

fn run(command: &mut Command, case: &str) -> Result<Outcome, String> {
    command.args(["-v", "--dev", "ferroce0", "--port", "1", "--gid", "1"]);
    let said = limited(command.arg(format!("tests.{case}")));
    // unittest writes all of this to standard error, and words of each case may say "error".
    let last = said.err.lines().last().unwrap_or_default();
    let is_success = said.status.is_some_and(|status| status.success());
    match last {
        "OK" if is_success => Ok(Outcome::Passed),
        "OK (skipped=1)" if is_success => Ok(Outcome::Skipped),
        _ => Err(said.to_string()),
    }
}
