//! Properties that hold for any cluster and any limits.

use proptest::prelude::*;

use crate::limits::{Cloud, Question, Report, results::CallCount, simulate};

fn report((nodes, services): (u32, u32), cloud: Cloud, rate: f64, burst: u32) -> Report {
    let families = ["compute", "network", "loadbalancer", "identity"];
    let buckets: Vec<_> = families.map(|family| format!("{family}: {{rate: {rate}, burst: {burst}}}")).into();
    let text = format!("limits: {{buckets: {{{}}}}}", buckets.join(", "));
    simulate(&Question::new(nodes, services, &text, cloud).expect("valid"))
}

fn sizes() -> impl Strategy<Value = ((u32, u32), Cloud, f64, u32)> {
    let clouds = prop_oneof![Just(Cloud::Sim), Just(Cloud::Openstack)];
    ((0_u32..300, 0_u32..120), clouds, 0.5_f64..20.0, 1_u32..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(test_support::cases(8)))]

    /// A higher rate changes neither the latencies of calls nor the number of readers. So a run with a higher rate takes at most a poll or
    /// two longer.
    #[test]
    fn twice_the_rate_is_never_slower((size, cloud, rate, burst) in sizes()) {
        let (slow, fast) = (report(size, cloud, rate, burst), report(size, cloud, rate * 2.0, burst));
        for (slow, fast) in [(&slow.bootstrap, &fast.bootstrap), (&slow.joins, &fast.joins)] {
            let (slow, fast) = (slow.converged_seconds, fast.converged_seconds);
            let (slow, fast) = (slow.expect("it ends"), fast.expect("it ends"));
            prop_assert!(fast <= slow + 4.0, "{} s at {}/s, {} s at twice that rate", slow, rate, fast);
        }
    }

    #[test]
    fn no_bucket_exceeds_its_limit((size, cloud, rate, burst) in sizes()) {
        let report = report(size, cloud, rate, burst);
        for (scenario, full) in [(&report.bootstrap, 0), (&report.joins, burst)] {
            let lasts = scenario.converged_seconds.expect("it ends");
            for bucket in &scenario.buckets {
                let most = rate * lasts + f64::from(full) + 1.0;
                prop_assert!(f64::from(u32::try_from(bucket.calls).expect("few")) <= most, "{:?}", bucket);
            }
        }
    }

    #[test]
    fn each_service_costs_its_planned_writes(((nodes, services), cloud, rate, burst) in sizes()) {
        let report = report((nodes, services), cloud, rate, burst);
        let writes = |calls: &[CallCount]| calls.iter().map(|one| one.writes).sum::<u32>();
        let (made, laid, joined) = match cloud {
            Cloud::Sim => (3, nodes.div_ceil(200), u32::from(nodes > 0)),
            Cloud::Openstack => (2, nodes + nodes.div_ceil(50), 2 * u32::from(nodes > 0)),
        };
        prop_assert_eq!(writes(&report.bootstrap.calls), made * services + laid);
        prop_assert_eq!(writes(&report.joins.calls), services + joined);
    }
}
