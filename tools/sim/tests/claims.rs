//! What docs/evaluation.md claims, in numbers and on shorter runs of the same files. A run is the
//! same on every machine, so bounds hold or they do not: none of them depends on luck.

use std::path::Path;

use ferroce_sim::config::{Document, Setting};
use ferroce_sim::report::{Run, Summary};

/// One combination of a file of docs/sim, in numbers.
fn run(file: &str, set: &[(&str, &str)]) -> Summary {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sim").join(file);
    let mut document = Document::read(&path).unwrap();
    for (key, value) in set {
        document.set(Setting { key: (*key).to_owned(), value: (*value).to_owned() });
    }
    let experiment = document.experiment().unwrap();
    let outcome = ferroce_sim::run(&experiment.plan, &mut |_| {}).unwrap();
    Run { name: file, set: &[], experiment: &experiment, outcome: &outcome }.summary()
}

fn mean_queue(summary: &Summary) -> f64 {
    summary.queue.mean_bytes.unwrap()
}

/// The mean queue of DCQCN's fluid model where it is in balance, in bytes: "ECN or Delay" (CoNEXT
/// 2016), section 3, with the parameters of fixed-point.toml on 40 Gbit/s.
fn fluid_queue(flows: f64, ai_rate: f64) -> f64 {
    let (frame, on_link) = (1082.0, 1106.0);
    let packets = 40e9 / 8.0 / on_link;
    let increase = ai_rate / 8.0 / on_link;
    let per_event = frame / 10e6 + flows / (55e-6 * packets);
    let cubed = increase * flows * flows / (55e-6 * packets * packets) * per_event * per_event;
    5e3 + cubed.cbrt() / 0.01 * 195e3
}

#[test]
fn two_flows_share_fairly_and_keep_the_queue_near_where_marks_begin() {
    for algorithm in ["dcqcn", "swift"] {
        let short = [("duration", "60 ms"), ("warmup", "30 ms"), ("host.congestion", algorithm)];
        let two = run("two-flows.toml", &short);
        assert!(two.all.jain.unwrap() > 0.95, "{algorithm}: {:?}", two.all.jain);
        assert!(two.all.goodput_gbps > 36.5, "{algorithm}: {}", two.all.goodput_gbps);
        let most = if algorithm == "dcqcn" { 40e3 } else { 120e3 };
        assert!((5e3..most).contains(&mean_queue(&two)), "{algorithm}: {}", mean_queue(&two));
        assert_eq!((two.dropped, two.pfc.pauses), (0, 0));
    }
}

#[test]
fn the_queue_of_dcqcn_is_that_of_its_fluid_model() {
    for (flows, ai_rate) in [("2", "40"), ("4", "10"), ("8", "40")] {
        let summary = run(
            "fixed-point.toml",
            &[
                ("duration", "100 ms"),
                ("warmup", "40 ms"),
                ("workload.incast.senders", flows),
                ("congestion.dcqcn.rpg_ai_rate", ai_rate),
            ],
        );
        let model = fluid_queue(flows.parse().unwrap(), ai_rate.parse::<f64>().unwrap() * 1e6);
        let ratio = mean_queue(&summary) / model;
        assert!((0.85..1.25).contains(&ratio), "{flows} flows, {ai_rate} Mbit/s: {ratio}");
    }
}

#[test]
fn timely_is_fair_where_t_low_decides_and_not_where_the_gradient_alone_does() {
    let timely = |delay, t_low| {
        run(
            "two-flows.toml",
            &[
                ("warmup", "100 ms"),
                ("host.congestion", "timely"),
                ("topology.delay", delay),
                ("congestion.timely.t_low", t_low),
            ],
        )
    };
    let short = timely("1 us", "50000");
    assert!(short.all.jain.unwrap() > 0.99, "{:?}", short.all.jain);
    assert!((35.0..36.5).contains(&short.all.goodput_gbps), "{}", short.all.goodput_gbps);
    assert!(mean_queue(&short) < 60e3, "{}", mean_queue(&short));
    let long = timely("15 us", "50000");
    assert!(long.all.jain.unwrap() < 0.95, "{:?}", long.all.jain);
    assert!(long.all.goodput_gbps < 28.0, "{}", long.all.goodput_gbps);
    let above = timely("15 us", "100000");
    assert!(above.all.jain.unwrap() > 0.99, "{:?}", above.all.jain);
    assert!(above.all.goodput_gbps > 36.5, "{}", above.all.goodput_gbps);
}

/// "ECN or Delay" (CoNEXT 2016), section 4: the round trip at which its change of TIMELY rests,
/// less the way itself, at what 40 Gbit/s leave for frames.
#[test]
fn the_queue_of_patched_timely_is_that_of_its_fluid_model() {
    for (flows, delta) in [("2", "40"), ("8", "10"), ("8", "40")] {
        let summary = run(
            "fixed-point.toml",
            &[
                ("duration", "120 ms"),
                ("warmup", "80 ms"),
                ("workload.incast.senders", flows),
                ("congestion.dcqcn.rpg_ai_rate", "40"),
                ("host.congestion", "timely"),
                ("congestion.timely.patched", "8"),
                ("congestion.timely.delta", delta),
            ],
        );
        let rate = 40e9 * 1082.0 / 1106.0;
        let steps = flows.parse::<f64>().unwrap() * delta.parse::<f64>().unwrap() * 1e6;
        let round_trip = 50e-6 * (1.0 + steps / (0.008 * rate));
        let model = (round_trip - 4.5e-6) * rate / 8.0;
        let ratio = mean_queue(&summary) / model;
        assert!((0.95..1.05).contains(&ratio), "{flows} flows, {delta} Mbit/s: {ratio}");
        assert!(summary.all.jain.unwrap() > 0.99, "{:?}", summary.all.jain);
    }
}

#[test]
fn an_incast_loses_nothing_with_pfc_and_pauses_little_with_dcqcn() {
    let incast = |congestion, pfc| {
        run(
            "incast-long.toml",
            &[
                ("duration", "10 ms"),
                ("warmup", "5 ms"),
                ("workload.incast.senders", "32"),
                ("host.congestion", congestion),
                ("switch.pfc.enabled", pfc),
            ],
        )
    };
    let (bare, paused) = (incast("none", "false"), incast("none", "true"));
    assert!(bare.dropped > 0 && bare.all.goodput_gbps < 30.0 && bare.pfc.pauses == 0);
    assert!(paused.dropped == 0 && paused.pfc.pauses > 0 && paused.all.goodput_gbps > 36.5);
    let controlled = incast("dcqcn", "true");
    assert_eq!(controlled.dropped, 0);
    assert!(controlled.pfc.paused_us < paused.pfc.paused_us / 10.0, "{:?}", controlled.pfc);
    assert!(mean_queue(&controlled) < mean_queue(&paused) / 10.0, "{:?}", controlled.queue);
}

#[test]
fn a_victim_of_pauses_gets_its_due_with_congestion_control() {
    let victim = |congestion| {
        let set = [("duration", "40 ms"), ("warmup", "35 ms"), ("host.congestion", congestion)];
        let summary = run("victim.toml", &set);
        summary.groups.iter().find(|group| group.name == "victim").unwrap().goodput_gbps
    };
    assert!(victim("none") < 10.0);
    assert!(victim("dcqcn") > 36.0);
    assert!(victim("swift") > 36.0);
}

#[test]
fn at_one_percent_of_loss_selective_repeat_gets_more_than_go_back_n() {
    let goodput = |recovery| {
        let rule = ("fault.0.rule", "drop 1% of rc-write");
        let set = [("duration", "10 ms"), rule, ("host.loss_recovery", recovery)];
        run("loss.toml", &set).all.goodput_gbps
    };
    let (back, selective) = (goodput("go-back-n"), goodput("selective-repeat"));
    assert!(back < 18.0, "{back}");
    assert!(selective > 22.0, "{selective}");
}
