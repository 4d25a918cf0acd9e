//! What an idle QP costs in memory, counted by the allocator.

use ferroce::world::{ConnectOptions, World, WorldConfig};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const QPS: usize = 10_000;

#[test]
fn an_idle_connected_qp_takes_less_than_4_kib() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let mut world = World::new(WorldConfig::default()).unwrap();
    let options = ConnectOptions::default();
    world.connect_rc(0, 1, &options).unwrap();
    let before = dhat::HeapStats::get().curr_bytes;
    for _ in 0..QPS / 2 {
        world.connect_rc(0, 1, &options).unwrap();
    }
    let each = (dhat::HeapStats::get().curr_bytes - before) / QPS;
    println!("{each} bytes for each of {QPS} QPs in RTS, its CQ and PD with it");
    assert!(each < 4096, "{each} bytes for each QP");
}
