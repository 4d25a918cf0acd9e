//! The operations that inlines of the header call through a context instead of by name.

use crate::layout::{VerbsContext, zeroed};
use crate::{context, cq, device, dm, flow, mr, mw, pd, port, post, qp, srq, xrcd};

/// A context with every slot we fill; the inlines answer EOPNOTSUPP for the others.
pub(crate) fn verbs_context() -> VerbsContext {
    let mut verbs: VerbsContext = zeroed();
    verbs.query_port = Some(port::query_port);
    verbs.query_device_ex = Some(device::query_device_ex);
    verbs.query_rt_values = Some(context::query_rt_values);
    verbs.advise_mr = Some(mr::advise_mr);
    verbs.alloc_null_mr = Some(mr::alloc_null_mr);
    verbs.alloc_dm = Some(dm::alloc_dm);
    verbs.free_dm = Some(dm::free_dm);
    verbs.reg_dm_mr = Some(dm::reg_dm_mr);
    verbs.alloc_td = Some(pd::alloc_td);
    verbs.dealloc_td = Some(pd::dealloc_td);
    verbs.alloc_parent_domain = Some(pd::alloc_parent_domain);
    verbs.create_cq_ex = Some(cq::create_cq_ex);
    verbs.create_srq_ex = Some(srq::create_srq_ex);
    verbs.get_srq_num = Some(srq::get_srq_num);
    verbs.open_xrcd = Some(xrcd::open_xrcd);
    verbs.close_xrcd = Some(xrcd::close_xrcd);
    verbs.create_qp_ex = Some(qp::create_qp_ex);
    verbs.open_qp = Some(qp::open_qp);
    verbs.ibv_create_flow = Some(flow::create_flow);
    verbs.ibv_destroy_flow = Some(flow::destroy_flow);
    verbs.sz = size_of::<VerbsContext>();
    // "A `verbs_context` is in front."
    verbs.context.abi_compat = usize::MAX;
    let ops = &mut verbs.context.ops;
    ops._compat_query_device = Some(device::ibv_query_device);
    ops._compat_query_port = Some(port::ibv_query_port);
    ops.alloc_mw = Some(mw::alloc_mw);
    ops.dealloc_mw = Some(mw::dealloc_mw);
    ops.bind_mw = Some(mw::bind_mw);
    ops.poll_cq = Some(cq::poll_cq);
    ops.req_notify_cq = Some(cq::req_notify_cq);
    ops.post_send = Some(post::post_send);
    ops.post_recv = Some(post::post_recv);
    ops.post_srq_recv = Some(post::post_srq_recv);
    verbs
}
