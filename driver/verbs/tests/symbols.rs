//! The shared library has exactly the symbols and versions that `symbols.txt` lists.

mod common;

use std::collections::BTreeSet;

use object::elf;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader, Sym};

/// `name@VERSION`, or `name@@VERSION` for the version new programs are linked to.
fn exported(file: &[u8]) -> BTreeSet<String> {
    let elf_file = ElfFile64::<object::Endianness>::parse(file).expect("an ELF file");
    let (header, endian) = (elf_file.elf_header(), elf_file.endian());
    let sections = header.sections(endian, file).expect("sections");
    let symbols = sections.symbols(endian, file, elf::SHT_DYNSYM).expect("dynamic symbols");
    let versions = sections.versions(endian, file).expect("versions").expect("a version table");
    assert!(sections.iter().any(|section| section.sh_type(endian) == elf::SHT_GNU_VERDEF));
    let mut names = BTreeSet::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.is_undefined(endian) || symbol.st_type() == elf::STT_NOTYPE {
            continue;
        }
        let name = symbol.name(endian, symbols.strings()).expect("a name");
        let name = String::from_utf8_lossy(name).into_owned();
        let version_index = versions.version_index(endian, index);
        let at = if version_index.is_hidden() { "@" } else { "@@" };
        let version = match versions.version(version_index.into()).expect("a known version") {
            Some(version) => String::from_utf8_lossy(version.name()).into_owned(),
            None => String::new(),
        };
        if name != version {
            names.insert(format!("{name}{at}{version}"));
        }
    }
    names
}

#[test]
fn symbols_and_versions_are_those_listed() {
    let file = std::fs::read(common::library()).expect("the shared library is built");
    let found = exported(&file);
    let listed: BTreeSet<String> = include_str!("symbols.txt").lines().map(str::to_owned).collect();
    let missing: Vec<_> = listed.difference(&found).collect();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    assert!(missing.is_empty(), "missing: {missing:#?}");
    assert!(unlisted.is_empty(), "not in symbols.txt: {unlisted:#?}");
}

#[test]
fn only_versioned_symbols_are_exported() {
    let file = std::fs::read(common::library()).expect("the shared library is built");
    let strays: Vec<_> = exported(&file).into_iter().filter(|name| name.ends_with('@')).collect();
    assert!(strays.is_empty(), "{strays:?}");
}
