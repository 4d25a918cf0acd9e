//! What is said of scenarios that fail or are written wrong: such as a person can act on it.
//!
//! The texts are in the folder `failures`; with `FERROCE_UPDATE` set they are written, not compared.

mod common;

use std::path::Path;
use std::{env, fs};

use common::{mistakes, said};

/// Compares what was said with the file of this name.
#[track_caller]
fn assert_said(name: &str, said: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/failures");
    let path = folder.join(name).with_extension("txt");
    if env::var_os("FERROCE_UPDATE").is_some() {
        fs::create_dir_all(folder).unwrap();
        fs::write(&path, said).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(said == expected, "{name} says\n{said}\nand not\n{expected}");
}

#[test]
fn a_field_that_is_another() {
    let said = said(
        "memory m 4096 bytes
qp a rc
rule \"IBA 9.7.4.1.5\": \"a key that is not valid is an access error\"
for offset in 0, 8
  peer sends write-only, psn 0, to m.address + offset, key m.key + 1, length 4, payload 4 of 7
  target sends nak-remote-access, psn 3, msn 9
end",
    );
    assert_said("a_field_that_is_another", &said);
}

#[test]
fn a_frame_that_is_another() {
    let said = said(
        "memory m 4096 bytes
qp a rc
peer sends write-only, psn 0, to m.address, key m.key + 1, length 4, payload 4 of 7
target sends ack, psn 0",
    );
    assert_said("a_frame_that_is_another", &said);
}

#[test]
fn a_frame_that_does_not_come() {
    let said = said(
        "qp a rc
peer sends send-only, psn 4, payload 4 of 7
target sends nak-sequence, psn 0
target sends ack, psn 4, within 3 ms",
    );
    assert_said("a_frame_that_does_not_come", &said);
}

#[test]
fn a_frame_nobody_asked_for() {
    let said = said(
        "qp a rc
peer sends send-only, psn 4, payload 4 of 7
qp a is RTS",
    );
    assert_said("a_frame_nobody_asked_for", &said);
}

#[test]
fn a_completion_that_is_another() {
    let said = said(
        "memory m 64 bytes
qp a rc
target posts receive 5, to m, length 4
peer sends send-only-imm, psn 0, payload 8 of 7, imm 3
target completes 6, length 8, imm any as x",
    );
    assert_said("a_completion_that_is_another", &said);
}

#[test]
fn memory_that_holds_something_else() {
    let said = said(
        "memory m 64 bytes, holds 8 counting from 1
qp a rc
peer sends write-only, psn 0, to m.address + 4, key m.key, length 4, payload 4 of 0xab
target stores 2 of 3 at 40, in m
memory m is untouched",
    );
    assert_said("memory_that_holds_something_else", &said);
}

#[test]
fn a_verb_that_does_not_refuse() {
    let said = said(
        "memory m 64 bytes
qp a rc
target posts send 1, from m, refused EINVAL",
    );
    assert_said("a_verb_that_does_not_refuse", &said);
}

#[test]
fn a_choice_that_is_none_of_both() {
    let said = said(
        "qp a rc
peer sends send-only, psn 4, payload 4 of 7
either
  target sends nak-sequence, psn 1
or
  target stays silent for 5 ms
end",
    );
    assert_said("a_choice_that_is_none_of_both", &said);
}

#[test]
fn a_group_in_which_one_is_missing() {
    let said = said(
        "memory m 64 bytes
qp a rc
target posts receive 1, to m
peer sends send-only, psn 0, payload 4 of 7, ack-request
in any order
  target completes 1
  target sends ack, psn 0
  target raises qp-fatal, within 2 ms
end",
    );
    assert_said("a_group_in_which_one_is_missing", &said);
}

#[test]
fn a_name_that_means_nothing() {
    let said = said(
        "memory m 64 bytes
qp a rc
let start = m.address
peer sends write-only, psn 0, to beginning, key m.key, length 4, payload 4 of 1",
    );
    assert_said("a_name_that_means_nothing", &said);
}

#[test]
fn an_object_of_another_kind() {
    let said = said("memory m 64 bytes\nqp a rc\ntarget moves m to ERR");
    assert_said("an_object_of_another_kind", &said);
}

#[test]
fn mistakes_are_found_before_anything_is_done() {
    let said = mistakes(
        "memory m 64 bytes, acces read
qp a rd
target posts sned 1
target polishes a
peer sends write-onyl, psn 0
peer sends send-only, psn xx, payload 4 of 1
target completes 1, status sucess
target sends ack, psn 0, as x
in any order
  peer sends ack, psn 0
end
either
  let xy = 1
or
  target sends ack, psn 0
end",
    );
    assert_said("mistakes_are_found_before_anything_is_done", &said);
}
