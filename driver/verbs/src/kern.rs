//! Conversions from and to the structures of the kernel's verbs interface. Nothing produces those
//! here; some programs carry them around all the same.

use crate::layout::{
    IbvAhAttr, IbvGid, IbvQpAttr, IbvQpCap, IbvSaPathRec, KernAhAttr, KernPathRec, KernQpAttr,
    zeroed,
};

/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_copy_ah_attr_from_kern(
    dst: *mut IbvAhAttr,
    src: *const KernAhAttr,
) {
    // SAFETY: the caller gives valid pointers or null.
    if let (Some(dst), Some(src)) = unsafe { (dst.as_mut(), src.as_ref()) } {
        *dst = ah_attr(src);
    }
}

fn ah_attr(src: &KernAhAttr) -> IbvAhAttr {
    let mut attr: IbvAhAttr = zeroed();
    attr.grh.dgid = IbvGid { raw: src.dgid };
    attr.grh.flow_label = src.flow_label;
    attr.grh.sgid_index = src.sgid_index;
    attr.grh.hop_limit = src.hop_limit;
    attr.grh.traffic_class = src.traffic_class;
    attr.dlid = src.dlid;
    attr.sl = src.sl;
    attr.src_path_bits = src.src_path_bits;
    attr.static_rate = src.static_rate;
    attr.is_global = src.is_global;
    attr.port_num = src.port_num;
    attr
}

/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_copy_qp_attr_from_kern(
    dst: *mut IbvQpAttr,
    src: *const KernQpAttr,
) {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(dst), Some(src)) = (unsafe { (dst.as_mut(), src.as_ref()) }) else { return };
    *dst = IbvQpAttr {
        qp_state: src.qp_state as i32,
        cur_qp_state: src.cur_qp_state as i32,
        path_mtu: src.path_mtu as i32,
        path_mig_state: src.path_mig_state as i32,
        qkey: src.qkey,
        rq_psn: src.rq_psn,
        sq_psn: src.sq_psn,
        dest_qp_num: src.dest_qp_num,
        qp_access_flags: src.qp_access_flags,
        cap: IbvQpCap {
            max_send_wr: src.max_send_wr,
            max_recv_wr: src.max_recv_wr,
            max_send_sge: src.max_send_sge,
            max_recv_sge: src.max_recv_sge,
            max_inline_data: src.max_inline_data,
        },
        ah_attr: ah_attr(&src.ah_attr),
        alt_ah_attr: ah_attr(&src.alt_ah_attr),
        pkey_index: src.pkey_index,
        alt_pkey_index: src.alt_pkey_index,
        en_sqd_async_notify: src.en_sqd_async_notify,
        sq_draining: src.sq_draining,
        max_rd_atomic: src.max_rd_atomic,
        max_dest_rd_atomic: src.max_dest_rd_atomic,
        min_rnr_timer: src.min_rnr_timer,
        port_num: src.port_num,
        timeout: src.timeout,
        retry_cnt: src.retry_cnt,
        rnr_retry: src.rnr_retry,
        alt_port_num: src.alt_port_num,
        alt_timeout: src.alt_timeout,
        rate_limit: 0,
    };
}

/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_copy_path_rec_from_kern(
    dst: *mut IbvSaPathRec,
    src: *const KernPathRec,
) {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(dst), Some(src)) = (unsafe { (dst.as_mut(), src.as_ref()) }) else { return };
    *dst = IbvSaPathRec {
        dgid: IbvGid { raw: src.dgid },
        sgid: IbvGid { raw: src.sgid },
        dlid: src.dlid,
        slid: src.slid,
        raw_traffic: src.raw_traffic as i32,
        flow_label: src.flow_label,
        hop_limit: src.hop_limit,
        traffic_class: src.traffic_class,
        reversible: src.reversible as i32,
        numb_path: src.numb_path,
        pkey: src.pkey,
        sl: src.sl,
        mtu_selector: src.mtu_selector,
        mtu: src.mtu as u8,
        rate_selector: src.rate_selector,
        rate: src.rate,
        packet_life_time_selector: src.packet_life_time_selector,
        packet_life_time: src.packet_life_time,
        preference: src.preference,
    };
}

/// # Safety
/// Both must be null or valid.
pub(crate) unsafe extern "C" fn ibv_copy_path_rec_to_kern(
    dst: *mut KernPathRec,
    src: *const IbvSaPathRec,
) {
    // SAFETY: the caller gives valid pointers or null.
    let (Some(dst), Some(src)) = (unsafe { (dst.as_mut(), src.as_ref()) }) else { return };
    *dst = KernPathRec {
        dgid: src.dgid.raw,
        sgid: src.sgid.raw,
        dlid: src.dlid,
        slid: src.slid,
        raw_traffic: src.raw_traffic as u32,
        flow_label: src.flow_label,
        reversible: src.reversible as u32,
        mtu: u32::from(src.mtu),
        pkey: src.pkey,
        hop_limit: src.hop_limit,
        traffic_class: src.traffic_class,
        numb_path: src.numb_path,
        sl: src.sl,
        mtu_selector: src.mtu_selector,
        rate_selector: src.rate_selector,
        rate: src.rate,
        packet_life_time_selector: src.packet_life_time_selector,
        packet_life_time: src.packet_life_time,
        preference: src.preference,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_record_survives_both_ways() {
        let mut kern: KernPathRec = zeroed();
        kern.dgid = [7; 16];
        (kern.flow_label, kern.mtu, kern.pkey, kern.hop_limit) = (5, 4, 0xffff, 64);
        let mut record: IbvSaPathRec = zeroed();
        let mut again: KernPathRec = zeroed();
        // SAFETY: references to locals.
        unsafe {
            ibv_copy_path_rec_from_kern(&mut record, &kern);
            ibv_copy_path_rec_to_kern(&mut again, &record);
        }
        assert_eq!(again.dgid, kern.dgid);
        assert_eq!((again.flow_label, again.mtu, again.pkey, again.hop_limit), (5, 4, 0xffff, 64));
    }

    #[test]
    fn qp_attributes_keep_their_places() {
        let mut kern: KernQpAttr = zeroed();
        (kern.qp_state, kern.max_inline_data, kern.alt_timeout) = (3, 64, 14);
        kern.ah_attr.dgid = [9; 16];
        let mut attr: IbvQpAttr = zeroed();
        // SAFETY: references to locals; null is allowed.
        unsafe {
            ibv_copy_qp_attr_from_kern(&mut attr, &kern);
            ibv_copy_qp_attr_from_kern(core::ptr::null_mut(), &kern);
        }
        assert_eq!((attr.qp_state, attr.cap.max_inline_data, attr.alt_timeout), (3, 64, 14));
        assert_eq!(attr.ah_attr.grh.dgid.raw, [9; 16]);
    }
}
