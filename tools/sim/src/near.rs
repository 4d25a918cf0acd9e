//! Which name somebody may have meant who wrote one that is not there.

/// The most names that are proposed.
const MOST: usize = 3;

/// "did you mean a, b or c? " with the names most like `name`; empty if none is like it.
pub(crate) fn did_you_mean<S: AsRef<str>>(name: &str, names: &[S]) -> String {
    let near = near(name, names);
    match near.split_last() {
        None => String::new(),
        Some((last, [])) => format!("did you mean {last}? "),
        Some((last, first)) => format!("did you mean {} or {last}? ", first.join(", ")),
    }
}

/// The names most like `name`, best first.
fn near<'n, S: AsRef<str>>(name: &str, names: &'n [S]) -> Vec<&'n str> {
    let wanted = folded(name);
    let ranked = names.iter().map(AsRef::as_ref).filter_map(|other| {
        let other_folded = folded(other);
        let distance = strsim::osa_distance(&wanted, &other_folded);
        let rank = match () {
            () if wanted.is_empty() => return None,
            () if other_folded == wanted => 0,
            () if other_folded.split('_').any(|word| word == wanted) => 1,
            () if distance == 1 && wanted.len() > 2 => 2,
            () if wanted.len() > 1 && other_folded.contains(&wanted) => 3,
            () if other_folded.len() > 2 && wanted.contains(&other_folded) => 3,
            () if distance <= (wanted.chars().count() / 3).max(1) => 3 + distance,
            () => return None,
        };
        Some((rank, other))
    });
    let mut ranked: Vec<(usize, &str)> = ranked.collect();
    // Of equals the first one named.
    ranked.sort_by_key(|(rank, _)| *rank);
    let best = ranked.first().map_or(0, |(rank, _)| *rank);
    let alike = ranked.into_iter().take_while(|(rank, _)| *rank == best);
    alike.map(|(_, name)| name).take(MOST).collect()
}

/// Without what people mix up: case, and `-` with `_`.
fn folded(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_be_meant_come_best_first() {
        let names = ["fct_p50_us", "fct_p99_us", "slowdown_p99", "jain", "pfc_pauses", "kmin"];
        assert_eq!(near("p99", &names), ["fct_p99_us", "slowdown_p99"]);
        assert_eq!(near("Kmin", &names), ["kmin"]);
        assert_eq!(near("jian", &names), ["jain"]);
        assert_eq!(near("pauses", &names), ["pfc_pauses"]);
        assert_eq!(near("fct-p50-us", &names), ["fct_p50_us"]);
        assert!(near("throughput", &names).is_empty());
        assert!(near("", &names).is_empty());
    }

    #[test]
    fn proposals_are_a_sentence() {
        assert_eq!(did_you_mean("p99", &["a_p99", "b_p99"]), "did you mean a_p99 or b_p99? ");
        assert_eq!(did_you_mean("x", &["jain"]), "");
    }
}
