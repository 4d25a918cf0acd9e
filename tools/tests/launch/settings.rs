//! `ferroce config` and `ferroce devices`.

use ferroce::config::Key;
use serde_json::Value;

use crate::support::{TempFolder, ferroce, output};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn config_says_where_each_value_came_from() {
    let folder = TempFolder::new();
    let file = folder.path().join("ferroce.toml");
    std::fs::write(&file, "seed = 3\nmtu = 512\ndevice = 'rxe'\n").unwrap();
    let mut command = ferroce(&["config", "--json", "--mtu", "1024"]);
    command.env("FERROCE_CONFIG", &file).env("FERROCE_SEED", "4").env("FERROCE_MTU", "256");
    let said = output(&mut command);
    assert_eq!(said.status, Some(0), "{said:?}");
    let of = |key: &str| {
        let line = lines(&said.out).into_iter().find(|line| line["key"] == key).unwrap();
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        (text("value"), text("source"))
    };
    let pair = |value: &str, source: &str| (value.to_owned(), source.to_owned());
    assert_eq!(of("mtu"), pair("1024", "flag --mtu"));
    assert_eq!(of("seed"), pair("4", "variable FERROCE_SEED"));
    assert_eq!(of("device"), pair("rxe", &format!("file {}", file.display())));
    assert_eq!(of("log"), pair("error", "default"));
}

#[test]
fn config_as_text_has_a_line_for_each_key() {
    let said = output(&mut ferroce(&["config", "--addr", "192.0.2.7"]));
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let table: Vec<Vec<String>> = said.out.lines().map(words).collect();
    assert_eq!(table[0], ["addr", "192.0.2.7", "flag", "--addr"]);
    assert_eq!(table[3], ["pcap", "-", "default"]);
    assert_eq!(table.len(), Key::ALL.len());
}

#[test]
fn a_wrong_setting_is_named_by_every_command() {
    let commands: [&[&str]; 4] = [&["config"], &["devices"], &["env"], &["run", "true"]];
    for command in commands {
        let said = output(ferroce(command).env("FERROCE_LOG", "a=b=c"));
        assert_ne!(said.status, Some(0));
        assert!(said.err.contains("log is 'a=b=c' (variable FERROCE_LOG)"), "{said:?}");
    }
    let said = output(&mut ferroce(&["devices", "--addr", "10.0.0"]));
    let expected = "ferroce: addr is '10.0.0' (flag --addr): expected IPv4 or IPv6 addresses";
    assert!(said.err.starts_with(expected), "{said:?}");
    assert_eq!(said.status, Some(2));
}

#[test]
fn devices_as_ibv_devinfo_as_rdma_link_and_as_json() {
    let addr = ["--addr", "127.0.0.1", "--addr", "203.0.113.9"];
    let show = |more: &[&str]| {
        let said = output(ferroce(&["devices"]).args(addr).args(more));
        assert_eq!(said.status, Some(0), "{said:?}");
        said.out
    };
    let link = show(&["--link"]);
    let expected = "link ferroce0/1 state ACTIVE physical_state LINK_UP netdev lo\n\
                    link ferroce1/1 state ACTIVE physical_state LINK_UP\n";
    assert_eq!(link, expected);
    let text = show(&[]);
    for line in [
        "hca_id: ferroce1",
        "node_guid:              0000:cbff:fe00:7109",
        "active_mtu:             4096 (5)",
        "line_rate:              -",
        "GID[  1]:               ::ffff:203.0.113.9, RoCE v2",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    let [first, second] = &lines(&show(&["--json"]))[..] else { panic!("two devices") };
    assert_eq!((&first["name"], &first["netdev"]), (&"ferroce0".into(), &"lo".into()));
    assert_eq!((&second["mac"], &second["netdev"]), (&"02:00:cb:00:71:09".into(), &Value::Null));
    assert_eq!(second["line_rate"], Value::Null);
    assert_eq!(second["gids"][0]["gid"], "fe80::cbff:fe00:7109");
}
