//! `ferroce install`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::{TempFolder, ferroce, ferroce_at, output};

#[test]
fn installed_files_work_from_where_they_are() {
    let folder = TempFolder::new();
    let prefix = folder.path().join("opt");
    let install = || output(ferroce(&["install", "--prefix"]).arg(&prefix));
    assert_eq!(install().status, Some(0));
    let said = install();
    assert_eq!((said.status, said.err.as_str()), (Some(0), ""), "over itself");
    let lib = prefix.join("lib/ferroce");
    let mut names: Vec<_> =
        fs::read_dir(&lib).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    let links = ["libibverbs.so", "libibverbs.so.1", "librdmacm.so", "librdmacm.so.1"];
    assert_eq!(names, [&["libferroce_verbs.so"], &links[..], &["librspreload.so"]].concat());
    for link in links {
        assert_eq!(fs::read_link(lib.join(link)).unwrap(), Path::new("libferroce_verbs.so"));
    }
    for page in ["ferroce.1", "ferroce-run.1", "ferroce-devices.1", "ferroce-install.1"] {
        assert!(
            fs::read_to_string(prefix.join("share/man/man1").join(page)).unwrap().contains(".TH")
        );
    }
    let executable = prefix.join("bin/ferroce");
    assert_eq!(executable.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    let run = ["run", "--", "sh", "-c", "echo $LD_LIBRARY_PATH"];
    let said = output(&mut ferroce_at(&executable, &run));
    assert_eq!(said.out.trim(), lib.to_str().unwrap(), "{said:?}");
}

#[test]
fn a_missing_library_and_a_folder_that_cannot_be_made_are_named() {
    let folder = TempFolder::new();
    let alone = folder.path().join("ferroce");
    fs::copy(env!("CARGO_BIN_EXE_ferroce"), &alone).unwrap();
    let said = output(&mut ferroce_at(&alone, &["run", "true"]));
    assert_eq!(said.status, Some(125));
    let place = format!("{}/deps/libferroce_verbs.so", folder.text());
    assert!(said.err.contains(&place) && said.err.contains("ferroce install"), "{said:?}");
    fs::write(folder.path().join("file"), "").unwrap();
    let said = output(ferroce(&["install", "--prefix"]).arg(folder.path().join("file")));
    assert_eq!(said.status, Some(2));
    assert!(said.err.contains("cannot make"), "{said:?}");
}
