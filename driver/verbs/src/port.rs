//! The port: attributes, GID table, P_Key table.

use core::ffi::c_int;

use ferroce_stack::{GidEntry, GidType};

use crate::context::Context;
use crate::device::Device;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvContext, IbvGid, IbvGidEntry, IbvPortAttr, zeroed};
use crate::log::refuse;

/// The one port.
const PORT: u32 = 1;
/// Bytes of `ibv_port_attr` in the first API: all up to `flags`.
const OLD_LEN: usize = 48;
/// Entries of the GID table; those after the device's own addresses are empty.
const GID_TBL_LEN: usize = 4;
/// The one P_Key: full member of the default partition.
pub(crate) const DEFAULT_PKEY: u16 = 0xffff;

/// `IBV_PORT_ACTIVE`.
const ACTIVE: c_int = 4;
/// `IBV_PORT_DOWN`.
const DOWN: c_int = 1;
/// `LINK_UP` of the physical state.
const LINK_UP: u8 = 5;
/// `DISABLED` of the physical state, as Linux has it for Ethernet that is down.
const DISABLED: u8 = 3;
/// `IBV_LINK_LAYER_ETHERNET`.
const ETHERNET: u8 = 2;
/// `IBV_MTU_4096`.
const MTU_4096: c_int = 5;
/// Connection management, and GIDs made from IP addresses.
const PORT_CAP_FLAGS: u32 = 1 << 16 | 1 << 26;
/// Every address must have a GRH (`IBV_QPF_GRH_REQUIRED`).
const GRH_REQUIRED: u8 = 1;
/// Rate in bit/s of a device without a link, or with one that does not know its rate.
const DEFAULT_RATE: u64 = 40_000_000_000;
/// Links by their rate: at most so many Mb/s, the number of lanes (`active_width`), the rate of
/// each (`active_speed_ex`): those of InfiniBand that carry so much, as Linux tells of Ethernet.
const RATES: [(u64, u8, u32); 11] = [
    (2_500, WIDTH_1X, 1),
    (5_000, WIDTH_1X, 2),
    (10_000, WIDTH_1X, 8),
    (20_000, WIDTH_4X, 2),
    (25_000, WIDTH_1X, 32),
    (40_000, WIDTH_4X, 8),
    (50_000, WIDTH_1X, 64),
    (100_000, WIDTH_4X, 32),
    (200_000, WIDTH_4X, 64),
    (400_000, WIDTH_4X, SPEED_NDR),
    (u64::MAX, WIDTH_4X, 256),
];
const WIDTH_1X: u8 = 1;
const WIDTH_4X: u8 = 2;
/// The fastest that `active_speed` holds.
const SPEED_NDR: u32 = 128;

/// `ibv_gid_entry.gid_type`: 1 is RoCE v1, 2 is RoCE v2.
fn entry_type(entry: &GidEntry) -> u32 {
    match entry.gid_type {
        GidType::RoceV1 => 1,
        GidType::RoceV2 => 2,
    }
}

fn check_port(port: u32) -> Result<(), Errno> {
    if port == PORT {
        return Ok(());
    }
    Err(refuse!(EINVAL, port, "the device has one port, number 1"))
}

/// The rate of a device's link in bit/s.
fn line_rate(device: &Device) -> u64 {
    device.info.line_rate.unwrap_or(DEFAULT_RATE)
}

/// Width and speed of a link of `rate` bit/s.
fn lanes(rate: u64) -> (u8, u32) {
    let [.., fastest] = RATES;
    let (_, width, speed) =
        *RATES.iter().find(|(mbit, ..)| rate.div_ceil(1_000_000) <= *mbit).unwrap_or(&fastest);
    (width, speed)
}

fn gid_tbl_len(gids: &[GidEntry]) -> usize {
    gids.len().max(GID_TBL_LEN)
}

/// The GID table's entry, none if it is empty; EINVAL where the table has ended.
fn gid_at(device: &Device, index: u32) -> Result<Option<GidEntry>, Errno> {
    let gids = device.gids();
    let (index, gid_tbl_len) = (index as usize, gid_tbl_len(&gids));
    if index >= gid_tbl_len {
        return Err(refuse!(EINVAL, index, gid_tbl_len, "no such GID index"));
    }
    Ok(gids.get(index).copied())
}

fn attributes(context: &Context) -> IbvPortAttr {
    let device = context.device;
    // In a forked child there is no engine to ask.
    let is_active = context.engine.port().map_or(true, |port| port.active);
    let (width, speed) = lanes(line_rate(device));
    let mut attr: IbvPortAttr = zeroed();
    attr.state = if is_active { ACTIVE } else { DOWN };
    attr.max_mtu = MTU_4096;
    attr.active_mtu = device.info.active_mtu as c_int;
    attr.gid_tbl_len = gid_tbl_len(&device.gids()) as c_int;
    attr.port_cap_flags = PORT_CAP_FLAGS;
    attr.max_msg_sz = ferroce_stack::MAX_MESSAGE as u32;
    attr.pkey_tbl_len = 1;
    attr.max_vl_num = 1;
    attr.active_width = width;
    attr.active_speed = speed.min(SPEED_NDR) as u8;
    attr.phys_state = if is_active { LINK_UP } else { DISABLED };
    attr.link_layer = ETHERNET;
    attr.flags = GRH_REQUIRED;
    attr.active_speed_ex = speed;
    attr
}

/// # Safety
/// `context` must be null or valid, `attr` null or writable for `len` bytes.
unsafe fn answer(
    context: *mut IbvContext,
    port: u32,
    attr: *mut IbvPortAttr,
    len: usize,
) -> Result<(), Errno> {
    // SAFETY: the caller gives a valid pointer or null.
    let context = unsafe { Context::of(context) }.ok_or(EINVAL)?;
    if attr.is_null() {
        return Err(EINVAL);
    }
    check_port(port)?;
    let answer = attributes(context);
    let ours = len.min(size_of::<IbvPortAttr>());
    // SAFETY: the caller's structure has `len` bytes, ours no fewer than `ours`.
    unsafe {
        core::ptr::write_bytes(attr.cast::<u8>(), 0, len);
        core::ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), attr.cast(), ours);
    }
    Ok(())
}

/// The query of the first API, whose structure ends after 48 bytes.
///
/// # Safety
/// `context` must be null or valid, `attr` null or writable for 48 bytes.
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut IbvContext,
    port: u8,
    attr: *mut IbvPortAttr,
) -> c_int {
    // SAFETY: as the caller promises.
    errno::code(unsafe { answer(context, port.into(), attr, OLD_LEN) })
}

/// The query with the size of the caller's structure.
///
/// # Safety
/// `context` must be null or valid, `attr` null or writable for `len` bytes.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut IbvContext,
    port: u8,
    attr: *mut IbvPortAttr,
    len: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    errno::code(unsafe { answer(context, port.into(), attr, len) })
}

/// Speed in units of 100 Mb/s.
///
/// # Safety
/// `context` must be null or valid, `speed` null or valid.
pub(crate) unsafe extern "C" fn ibv_query_port_speed(
    context: *mut IbvContext,
    port: u32,
    speed: *mut u64,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(context), Some(speed)) = (unsafe { (Context::of(context), speed.as_mut()) }) else {
        return errno::code(Err(EINVAL));
    };
    errno::code(check_port(port).map(|()| *speed = line_rate(context.device).div_ceil(100_000_000)))
}

/// # Safety
/// `context` must be null or valid, `gid` null or valid.
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut IbvContext,
    port: u8,
    index: c_int,
    gid: *mut IbvGid,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(context), Some(gid)) = (unsafe { (Context::of(context), gid.as_mut()) }) else {
        return errno::minus_one(Err(EINVAL));
    };
    let found = check_port(port.into()).and_then(|()| gid_at(context.device, index as u32));
    errno::minus_one(found.map(|entry| {
        // Programs walk the whole table and give up at an error: an empty entry is all zero.
        gid.raw = entry.map_or([0; 16], |entry| entry.gid.0);
        0
    }))
}

/// The private query of the type alone: 0 is RoCE v1 or an empty entry, 1 is RoCE v2.
///
/// # Safety
/// `context` must be null or valid, `gid_type` null or valid.
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut IbvContext,
    port: u8,
    index: u32,
    gid_type: *mut c_int,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(context), Some(gid_type)) = (unsafe { (Context::of(context), gid_type.as_mut()) })
    else {
        return errno::minus_one(Err(EINVAL));
    };
    let found = check_port(port.into()).and_then(|()| gid_at(context.device, index));
    errno::minus_one(found.map(|entry| {
        *gid_type = entry.map_or(0, |entry| entry_type(&entry) as c_int - 1);
        0
    }))
}

fn gid_entry(device: &Device, index: usize, entry: &GidEntry) -> IbvGidEntry {
    IbvGidEntry {
        gid: IbvGid { raw: entry.gid.0 },
        gid_index: index as u32,
        port_num: PORT,
        gid_type: entry_type(entry),
        ndev_ifindex: device.netdev_index(),
    }
}

/// # Safety
/// `place` must be writable for `entry_size` bytes.
unsafe fn write_entry(place: *mut u8, entry: &IbvGidEntry, entry_size: usize) {
    let len = entry_size.min(size_of::<IbvGidEntry>());
    // SAFETY: the caller's entry has `entry_size` bytes, ours no fewer than `len`.
    unsafe {
        core::ptr::write_bytes(place, 0, entry_size);
        core::ptr::copy_nonoverlapping((&raw const *entry).cast::<u8>(), place, len);
    }
}

fn check_entry_call(flags: u32, entry_size: usize) -> Result<(), Errno> {
    if flags != 0 {
        return Err(refuse!(EOPNOTSUPP, flags, "no flags are known"));
    }
    if entry_size < size_of::<IbvGidEntry>() {
        return Err(refuse!(EINVAL, entry_size, "a GID entry has 32 bytes"));
    }
    Ok(())
}

/// # Safety
/// `context` must be null or valid, `entry` null or writable for `entry_size` bytes.
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut IbvContext,
    port: u32,
    index: u32,
    entry: *mut IbvGidEntry,
    flags: u32,
    entry_size: usize,
) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(context) = (unsafe { Context::of(context) }) else {
        return errno::code(Err(EINVAL));
    };
    let checked = check_entry_call(flags, entry_size)
        .and_then(|()| check_port(port))
        .and_then(|()| if entry.is_null() { Err(EINVAL) } else { Ok(()) });
    let found = checked.and_then(|()| gid_at(context.device, index)?.ok_or(Errno(libc::ENODATA)));
    errno::code(found.map(|gid| {
        let answer = gid_entry(context.device, index as usize, &gid);
        // SAFETY: the caller's entry has `entry_size` bytes.
        unsafe { write_entry(entry.cast(), &answer, entry_size) };
    }))
}

/// Every GID; how many, or a negative errno.
///
/// # Safety
/// `context` must be null or valid, `entries` writable for `max_entries` times `entry_size` bytes.
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut IbvContext,
    entries: *mut IbvGidEntry,
    max_entries: usize,
    flags: u32,
    entry_size: usize,
) -> isize {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(context) = (unsafe { Context::of(context) }) else {
        return -(errno::code(Err(EINVAL)) as isize);
    };
    let gids = context.device.gids();
    let checked = check_entry_call(flags, entry_size).and_then(|()| {
        if entries.is_null() || max_entries < gids.len() {
            let needed = gids.len();
            return Err(refuse!(EINVAL, max_entries, needed, "the GID table does not fit"));
        }
        Ok(())
    });
    if checked.is_err() {
        return -(errno::code(checked) as isize);
    }
    for (index, gid) in gids.iter().enumerate() {
        let answer = gid_entry(context.device, index, gid);
        // SAFETY: the caller's array has at least as many entries as there are GIDs.
        unsafe { write_entry(entries.cast::<u8>().add(index * entry_size), &answer, entry_size) };
    }
    gids.len() as isize
}

/// # Safety
/// `context` must be null or valid, `pkey` (network order) null or valid.
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut IbvContext,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(_), Some(pkey)) = (unsafe { (Context::of(context), pkey.as_mut()) }) else {
        return errno::minus_one(Err(EINVAL));
    };
    let found = check_port(port.into()).and_then(|()| match index {
        0 => Ok(0),
        _ => Err(refuse!(EINVAL, index, "the P_Key table has one entry, index 0")),
    });
    errno::minus_one(found.inspect(|_| *pkey = DEFAULT_PKEY.to_be()))
}

/// The index of a P_Key (network order), or -1.
///
/// # Safety
/// `context` must be null or valid.
pub(crate) unsafe extern "C" fn ibv_get_pkey_index(
    context: *mut IbvContext,
    port: u8,
    pkey: u16,
) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let known = unsafe { Context::of(context) }.is_some();
    let found = if known { check_port(port.into()) } else { Err(EINVAL) };
    errno::minus_one(found.and_then(|()| match u16::from_be(pkey) {
        DEFAULT_PKEY => Ok(0),
        pkey => Err(refuse!(EINVAL, pkey, "the one P_Key is 0xffff")),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_told_by_the_narrowest_link_that_carries_it() {
        const GBIT: u64 = 1_000_000_000;
        let table = [
            (GBIT, 1, 1),
            (10 * GBIT, 1, 8),
            (25 * GBIT, 1, 32),
            (40 * GBIT, 2, 8),
            (100 * GBIT, 2, 32),
            (400 * GBIT, 2, 128),
            (800 * GBIT, 2, 256),
            (u64::MAX, 2, 256),
        ];
        for (rate, width, speed) in table {
            assert_eq!(lanes(rate), (width, speed), "{rate}");
        }
    }
}
