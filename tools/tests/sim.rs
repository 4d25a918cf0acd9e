//! `ferroce sim` as a command: what it leaves behind, and where its output goes.

use std::fs;
use std::io::Read;
use std::process::{Command, Output, Stdio};

use nix::pty::{Winsize, openpty};

const FILE: &str = "\
duration = '50 us'
[topology]
kind = 'star'
hosts = 3
[[workload]]
kind = 'incast'
size = '4 KiB'
";

/// A folder with a file `a.toml`, and the command in it.
struct Place(tempfile::TempDir);

impl Place {
    fn new(text: &str) -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.toml"), text).unwrap();
        Place(folder)
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferroce"));
        command.current_dir(self.0.path()).args(["sim", "a.toml"]);
        command.args(arguments.split_whitespace());
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.0.path().join(name).exists()
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_wrong_argument_leaves_no_folder_behind() {
    let place = Place::new(FILE);
    for (arguments, right) in [
        ("--set workload.0.senders=1,2 --plot p99", "did you mean fct_p99_us"),
        ("--set workload.0.senders=1,2 --against host.mtu", "expected one of workload.0.senders"),
        ("--set workload.0.senders=1,9", "expected at most 2"),
        ("--plot jain", "nothing varies"),
        ("--set switch.pfc.headroom=4MB --set switch.pfc.xoff=1MB", "headroom is 12000000 bytes"),
    ] {
        let output = place.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(stderr(&output).contains(right), "{arguments}: {}", stderr(&output));
        assert!(!place.has("a"), "{arguments}");
    }
}

#[test]
fn a_sweep_is_drawn_again_without_being_run() {
    let place = Place::new(FILE);
    let output = place.run("--set workload.0.senders=1,2 --plot jain,dropped");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(place.has("a/sweep-jain.svg") && place.has("a/sweep-dropped.svg"));
    let output = place.run("--replot --plot marked");
    assert!(output.status.success() && place.has("a/sweep.svg"), "{}", stderr(&output));
    let output = place.run("--replot --plot p99");
    assert!(stderr(&output).contains("did you mean"), "{}", stderr(&output));
    let output = place.run("--replot --out b");
    assert!(stderr(&output).contains("cannot read b/sweep.json"), "{}", stderr(&output));
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new(FILE);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run = |command: &mut Command| {
        command.stdout(Stdio::from(writer.try_clone().unwrap())).stderr(Stdio::piped());
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).contains("pipe")), (Some(0), false));
    };
    run(&mut place.command("--check"));
    run(&mut place.command("--json"));
    run(&mut place.command("--force --set workload.0.senders=1,2"));
    for command in [&["config"][..], &["ports", "--fabric", "no/such"], &["decode", "--help"]] {
        run(Command::new(env!("CARGO_BIN_EXE_ferroce")).args(command));
    }
}

#[test]
fn a_terminal_without_a_size_has_lines_of_any_length() {
    let place = Place::new(FILE);
    let size = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    let pty = openpty(Some(&size), None).unwrap();
    let mut child = place.command("--check").stdout(Stdio::from(pty.slave)).spawn().unwrap();
    let mut text = Vec::new();
    // Ends with an error when the child has closed its end.
    let _ = fs::File::from(pty.master).read_to_end(&mut text);
    assert!(child.wait().unwrap().success());
    let text = String::from_utf8_lossy(&text);
    assert!(text.lines().any(|line| line.contains("port") && line.contains("Gbit/s")), "{text}");
}
