//! Adoption of load balancers that users or other controllers created.

use super::*;

/// Removes all tags of the adapter, as if a user had created the load balancer.
fn disowned(bench: &mut Bench) {
    let tags = Some(Tags::from([("team".into(), "x".into())]));
    let change = UpdateLoadBalancer { name: None, tags };
    bench.execute(&Step::UpdateLoadBalancer { balancer: Part::Known("lb-0001".into()), change });
}

#[test]
fn adoption_in_desired_state_costs_one_write() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    disowned(&mut bench);
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes, ["tag load balancer lb-0001 with its owner"]);
    assert_eq!(record.detail.tags.get("team").map(String::as_str), Some("x"));

    disowned(&mut bench);
    let writes = bench.settled(&web([tcp(80), tcp(443)])).1;
    let (first, last) = ("tag load balancer lb-0001 with its owner", "tag load balancer as complete");
    assert_eq!(writes, [first, "create listener tcp/443 with 2 members", last]);
}

#[test]
fn adopted_with_immutable_difference_is_not_complete() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    disowned(&mut bench);
    let desired = with(web([tcp(80)]), |spec| spec.set_scheme(load_balancer_spec::Scheme::Internal));
    assert!(!bench.run(&desired, 1), "the plan has one step");
    assert_eq!(bench.plan(&desired).expect_err("fixed").fault, Fault::Immutable);
    assert_eq!(bench.observe().expect("there").summary.applied_hash, "");
}
