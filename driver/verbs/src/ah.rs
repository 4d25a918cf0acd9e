//! Address handles, from attributes or from the headers of a received datagram.

use core::ffi::c_int;

use ferroce::config::NoGrh;
use ferroce_stack::GidEntry;
use ferroce_stack::gid::Gid;
use ferroce_stack::verbs::{self, AhAttr};

use crate::context::Context;
use crate::errno::{self, EINVAL, Errno};
use crate::layout::{IbvAh, IbvAhAttr, IbvContext, IbvGid, IbvGrh, IbvPd, IbvWc, zeroed};
use crate::log::refuse;
use crate::pd::Pd;

/// `IBV_WC_GRH`.
const WC_GRH: u32 = 1;
/// What packets to the device itself have left to go.
const HOP_LIMIT: u8 = 64;
/// Where the IPv4 header is in the 40 bytes in front of a datagram.
const IPV4_AT: usize = 20;

/// An address handle.
#[repr(C)]
pub(crate) struct Ah {
    abi: IbvAh,
    /// The handle of the device.
    pub ah: verbs::Ah,
}

impl Ah {
    /// The address handle a program means.
    ///
    /// # Safety
    /// `ah` must be null or one of ours.
    pub unsafe fn of<'a>(ah: *const IbvAh) -> Option<&'a Ah> {
        // SAFETY: a handle of ours begins with what programs hold.
        unsafe { ah.cast::<Ah>().as_ref() }
    }
}

/// Attributes as the device takes them, the next hop's MAC left open. `dlid` is ignored: some
/// programs keep a UDP source port there. Without a GRH it is the setting `no-grh` that decides.
///
/// # Errors
/// EINVAL, with the reason in the log.
pub(crate) fn attributes(context: &Context, attr: &IbvAhAttr) -> Result<AhAttr, Errno> {
    let IbvAhAttr { is_global, port_num, sl, ref grh, .. } = *attr;
    let no_grh = context.device.settings.no_grh;
    if is_global == 0 && no_grh == NoGrh::Refuse {
        return Err(refuse!(
            EINVAL,
            is_global,
            "an Ethernet port needs is_global = 1 and a GRH with a dgid; for two programs of one \
             device that know no GRH there is the setting no-grh = own"
        ));
    }
    if port_num != 1 {
        return Err(refuse!(EINVAL, port_num, "ah_attr.port_num: the device has port 1"));
    }
    let gids = context.device.gids();
    if is_global == 0 {
        return own_address(&gids, sl);
    }
    let dgid = Gid(grh.dgid.raw);
    let Some(source) = gids.get(usize::from(grh.sgid_index)) else {
        let (sgid_index, gid_tbl_len) = (grh.sgid_index, gids.len());
        return Err(refuse!(EINVAL, sgid_index, gid_tbl_len, "no such index in the GID table"));
    };
    if dgid == Gid::default() {
        return Err(refuse!(EINVAL, "ah_attr.grh.dgid is zero: the peer's GID is missing"));
    }
    if source.gid.ipv4().is_some() != dgid.ipv4().is_some() && !dgid.is_multicast() {
        let sgid_index = grh.sgid_index;
        return Err(refuse!(
            EINVAL, sgid_index, sgid = %source.gid, %dgid,
            "source and destination are not of one IP version; choose another sgid_index"
        ));
    }
    Ok(AhAttr {
        dgid,
        sgid_index: grh.sgid_index,
        flow_label: grh.flow_label & 0xf_ffff,
        hop_limit: grh.hop_limit,
        traffic_class: grh.traffic_class,
        sl: sl & 7,
        ..AhAttr::default()
    })
}

/// The way from the device to itself, by the last of its GIDs: the one it was given.
fn own_address(gids: &[GidEntry], sl: u8) -> Result<AhAttr, Errno> {
    let own = gids.len().checked_sub(1).ok_or(EINVAL)?;
    let (dgid, sgid_index) = (gids[own].gid, own as u8);
    Ok(AhAttr { dgid, sgid_index, hop_limit: HOP_LIMIT, sl: sl & 7, ..AhAttr::default() })
}

/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_create_ah(pd: *mut IbvPd, attr: *mut IbvAhAttr) -> *mut IbvAh {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(domain), Some(attr)) = (unsafe { (Pd::of(pd), attr.as_ref()) }) else {
        return errno::pointer(Err(EINVAL));
    };
    errno::pointer(create(domain, attr))
}

fn create(pd: &Pd, attr: &IbvAhAttr) -> Result<*mut IbvAh, Errno> {
    let context = pd.context()?;
    let attr = attributes(context, attr)?;
    let ah = context.engine.create_ah(pd.pd, &attr).inspect_err(|error| {
        let AhAttr { dgid, sgid_index, .. } = attr;
        tracing::warn!(%dgid, sgid_index, %error, "no address handle");
    })?;
    let abi = IbvAh { context: context.as_abi(), pd: pd.as_abi(), handle: ah.value() };
    Ok(Box::into_raw(Box::new(Ah { abi, ah })).cast())
}

/// # Safety
/// `ah` must be null or one of ours, and not used afterwards.
pub(crate) unsafe extern "C" fn ibv_destroy_ah(ah: *mut IbvAh) -> c_int {
    // SAFETY: the caller gives a valid pointer or null.
    let Some(handle) = (unsafe { Ah::of(ah) }) else { return errno::code(Err(EINVAL)) };
    errno::code(destroy(handle).map(|()| {
        // SAFETY: it came from a `Box`, and the caller does not use it any more.
        drop(unsafe { Box::from_raw(ah.cast::<Ah>()) });
    }))
}

fn destroy(handle: &Ah) -> Result<(), Errno> {
    // SAFETY: a program closes a context after its address handles.
    let context = unsafe { Context::of(handle.abi.context) }.ok_or(EINVAL)?;
    Ok(context.engine.lock()?.destroy_ah(handle.ah)?)
}

/// The way back to the sender of a datagram, from its completion and the 40 bytes before it.
///
/// # Safety
/// All must be null or valid.
pub(crate) unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut IbvContext,
    port: u8,
    wc: *mut IbvWc,
    grh: *mut IbvGrh,
    attr: *mut IbvAhAttr,
) -> c_int {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(context), Some(wc), Some(attr)) =
        (unsafe { (Context::of(context), wc.as_ref(), attr.as_mut()) })
    else {
        return errno::code(Err(EINVAL));
    };
    // SAFETY: a GRH is 40 bytes.
    let grh = unsafe { grh.cast::<[u8; 40]>().as_ref() };
    errno::code(way_back(context, port, wc, grh).map(|found| *attr = found))
}

/// # Safety
/// All must be null or valid.
pub(crate) unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut IbvPd,
    wc: *mut IbvWc,
    grh: *mut IbvGrh,
    port: u8,
) -> *mut IbvAh {
    // SAFETY: the caller gives valid pointers or null; a GRH is 40 bytes.
    let (domain, wc, grh) = unsafe { (Pd::of(pd), wc.as_ref(), grh.cast::<[u8; 40]>().as_ref()) };
    let (Some(domain), Some(wc)) = (domain, wc) else { return errno::pointer(Err(EINVAL)) };
    let attr = domain.context().and_then(|context| way_back(context, port, wc, grh));
    errno::pointer(attr.and_then(|attr| create(domain, &attr)))
}

fn way_back(
    context: &Context,
    port: u8,
    wc: &IbvWc,
    grh: Option<&[u8; 40]>,
) -> Result<IbvAhAttr, Errno> {
    let grh = grh.filter(|_| wc.wc_flags & WC_GRH != 0).ok_or_else(|| {
        refuse!(EINVAL, wc.wc_flags, "the completion says nothing of a GRH, and none is given")
    })?;
    let headers = parse(grh).ok_or_else(|| {
        refuse!(EINVAL, "the 40 bytes before the datagram are neither IPv6 nor end in IPv4")
    })?;
    let gids = context.device.gids();
    let sgid_index = gids.iter().position(|entry| entry.gid == headers.destination);
    let Some(sgid_index) = sgid_index.or(headers.destination.is_multicast().then_some(0)) else {
        return Err(refuse!(EINVAL, gid = %headers.destination, "not an address of this device"));
    };
    let mut attr: IbvAhAttr = zeroed();
    attr.grh.dgid = IbvGid { raw: headers.source.0 };
    attr.grh.flow_label = headers.flow_label;
    attr.grh.sgid_index = sgid_index as u8;
    attr.grh.hop_limit = 0xff;
    attr.grh.traffic_class = headers.traffic_class;
    attr.dlid = wc.slid;
    // Not the completion's: that is the kind of network header.
    attr.sl = 0;
    attr.src_path_bits = wc.dlid_path_bits;
    attr.is_global = 1;
    attr.port_num = port;
    Ok(attr)
}

/// Of a datagram's network header, what the way back needs.
#[derive(Debug, PartialEq, Eq)]
struct NetworkHeader {
    source: Gid,
    destination: Gid,
    traffic_class: u8,
    flow_label: u32,
}

/// An IPv6 header (or GRH), or an IPv4 header in the last 20 bytes, after 20 of no meaning.
fn parse(grh: &[u8; 40]) -> Option<NetworkHeader> {
    let (v4_header, _) = grh[IPV4_AT..].split_first_chunk::<20>()?;
    if v4_header[0] == 0x45 && checksum_is_right(v4_header) {
        let address = |at: usize| -> [u8; 4] { core::array::from_fn(|byte| v4_header[at + byte]) };
        return Some(NetworkHeader {
            source: Gid::from(std::net::Ipv4Addr::from(address(12))),
            destination: Gid::from(std::net::Ipv4Addr::from(address(16))),
            traffic_class: v4_header[1],
            flow_label: 0,
        });
    }
    let first = u32::from_be_bytes([grh[0], grh[1], grh[2], grh[3]]);
    (first >> 28 == 6).then(|| NetworkHeader {
        source: Gid(core::array::from_fn(|byte| grh[8 + byte])),
        destination: Gid(core::array::from_fn(|byte| grh[24 + byte])),
        traffic_class: (first >> 20) as u8,
        flow_label: first & 0xf_ffff,
    })
}

fn checksum_is_right(header: &[u8; 20]) -> bool {
    let words = header.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4() -> [u8; 40] {
        let mut grh = [0; 40];
        let header = &mut grh[20..];
        header[..12].copy_from_slice(&[0x45, 0x2a, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        header[12..].copy_from_slice(&[192, 0, 2, 1, 192, 0, 2, 2]);
        let words = header.chunks_exact(2).map(|pair| u32::from_be_bytes([0, 0, pair[0], pair[1]]));
        let sum: u32 = words.sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        grh
    }

    #[test]
    fn ipv4_is_found_in_the_last_twenty_bytes() {
        let headers = parse(&ipv4()).unwrap();
        assert_eq!(headers.source, Gid::from(std::net::Ipv4Addr::new(192, 0, 2, 1)));
        assert_eq!(headers.destination, Gid::from(std::net::Ipv4Addr::new(192, 0, 2, 2)));
        assert_eq!((headers.traffic_class, headers.flow_label), (0x2a, 0));
    }

    #[test]
    fn ipv6_fills_all_forty() {
        let mut grh = [0; 40];
        grh[..4].copy_from_slice(&[0x61, 0x23, 0x45, 0x67]);
        (grh[8], grh[24]) = (0xfe, 0xfd);
        let headers = parse(&grh).unwrap();
        assert_eq!((headers.source.0[0], headers.destination.0[0]), (0xfe, 0xfd));
        assert_eq!((headers.traffic_class, headers.flow_label), (0x12, 0x34567));
    }

    #[test]
    fn anything_else_is_no_header() {
        assert_eq!(parse(&[0; 40]), None);
        assert_eq!(parse(&[0xff; 40]), None);
        let mut broken = ipv4();
        broken[39] ^= 1;
        assert_eq!(parse(&broken), None, "a wrong checksum");
    }

    #[test]
    fn the_device_itself_is_the_last_of_its_addresses() {
        let entry = |gid| GidEntry {
            gid,
            gid_type: ferroce_stack::GidType::RoceV2,
            mac: ferroce_stack::wire::Mac([2; 6]),
            vlan: None,
        };
        let own = Gid::from(std::net::Ipv4Addr::new(192, 0, 2, 1));
        let attr = own_address(&[entry(Gid([0xfe; 16])), entry(own)], 9).unwrap();
        assert_eq!((attr.dgid, attr.sgid_index, attr.sl), (own, 1, 1));
        assert_eq!(own_address(&[], 0), Err(EINVAL));
    }
}
