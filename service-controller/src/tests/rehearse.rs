//! The page with the plans of Services, and dry-run mode.

use std::time::Duration;

use cloud_api_proto::{AdapterError, Reason};
use controller_core::{
    explain::report::{Plans, Priced, State},
    testing::{node, service},
};
use k8s_openapi::api::core::v1::{Node, Service};

use super::world::World;

const HOUR: Duration = Duration::from_hours(1);
const FINALIZER: &str = "add the finalizer service.kubernetes.io/load-balancer-cleanup";
const STATUS: &str = "write the status, once the load balancer has an address";

impl World {
    async fn plans(&self) -> Plans {
        self.explain.plan("").await.expect("the controller runs")
    }

    async fn planned(&self) -> Priced {
        let plans = self.plans().await;
        let [only] = plans.objects.as_slice() else { panic!("{plans:?}") };
        only.clone()
    }

    /// Numbers of ensures, deletions, and writes to the API server.
    fn spent(&self) -> (usize, usize, usize) {
        let (ensures, deletes) = self.cloud.read(|state| (state.ensures.len(), state.deletes.len()));
        (ensures, deletes, self.kube.writes().len() + self.events().len())
    }
}

fn operations(plan: &Priced) -> Vec<&str> {
    plan.vendor.iter().map(|step| step.operation.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn dry_run_changes_nothing_and_shows_plan() {
    let world = World::new().only_looking(true).started().await;
    world.node("a");
    world.service(service("web").port(80).port(443));
    world.quiet().await;
    tokio::time::sleep(HOUR).await;
    assert_eq!((world.spent(), world.cloud.read(|state| state.dry_runs.len())), ((0, 0, 0), 0));
    let plan = world.planned().await;
    assert_eq!((plan.kind.as_str(), plan.key.as_str()), ("Service", "default/web"));
    assert_eq!(plan.cluster, [FINALIZER, STATUS]);
    assert_eq!(operations(&plan), ["WriteLoadBalancer", "CreateListener", "CreateListener"]);
    assert_eq!((plan.vendor[1].description.as_str(), plan.trouble), ("create listener tcp/80", None));
    let plans = world.plans().await;
    assert_eq!((plans.dry_run, plans.looked_at, plans.of, plans.next), (true, 1, 1, None));
    let status = world.explain.status().expect("the controller runs");
    assert_eq!((status.dry_run, status.unsettled), (true, 1));
    let seen = world.explain.one("default/web").expect("a good key");
    assert_eq!(
        (seen.state, seen.waits_for.as_deref()),
        (State::Waiting, Some("Dry run: nothing is changed"))
    );
    assert_eq!(world.spent(), (0, 0, 0));

    // Without dry-run mode, the plan is executed, and then nothing is left to do.
    let world = world.stop().await.only_looking(false).started().await;
    world.eventually_ingress_of("web").await;
    world.quiet().await;
    assert!(world.plans().await.objects.is_empty());
    let world = world.stop().await.only_looking(true).started().await;
    let spent = world.spent();
    world.quiet().await;
    let plans = world.plans().await;
    assert_eq!((plans.objects, plans.looked_at, plans.of), (vec![], 1, 1), "a safe swap");
    assert_eq!(world.spent(), spent);
}

#[tokio::test(start_paused = true)]
async fn rehearsal_shows_deletions_and_does_none() {
    let world = World::start().await;
    world.service(service("web").port(80)).service(service("gone").port(80));
    world.eventually_ingress_of("web").await;
    world.eventually_ingress_of("gone").await;
    let world = world.stop().await.only_looking(true).started().await;
    let spent = world.spent();
    world.change("web", |it| it.spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned()));
    world.quiet().await;
    let plan = world.planned().await;
    assert_eq!(operations(&plan), ["DeleteLoadBalancer"]);
    assert_eq!(
        plan.cluster,
        ["remove the finalizer service.kubernetes.io/load-balancer-cleanup, and empty the status"]
    );
    world.kube.put::<Service>(service("gone").port(80).deleted());
    tokio::time::sleep(HOUR).await;
    let plans = world.plans().await;
    assert_eq!(plans.objects.len(), 2, "{plans:?}");
    assert!(plans.objects[0].vendor.is_empty(), "an orphan is only reported: {plans:?}");
    assert!(plans.objects[0].trouble.is_some() && plans.objects[1].trouble.is_none());
    assert_eq!((plans.looked_at, plans.of), (1, 1));
    assert_eq!(world.spent(), spent);
}

#[tokio::test(start_paused = true)]
async fn rehearsal_shows_blocking_reason_and_plan() {
    let world = World::start().await;
    world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::VendorQuota, "50 load balancers"));
    world.service(service("web").port(80));
    world.quiet().await;
    let (spent, waits) = (world.spent(), world.explain.one("default/web").expect("a good key").waits_for);
    let plan = world.planned().await;
    assert_eq!(operations(&plan), ["WriteLoadBalancer", "CreateListener"]);
    assert_eq!(plan.cluster, [STATUS], "the finalizer is already set");
    assert_eq!((plan.trouble, plan.reason.as_deref()), (waits, Some("VENDOR_QUOTA")));
    assert_eq!(world.spent(), spent, "showing the page changes nothing");

    let world = world.stop().await.only_looking(true).started().await;
    world.quiet().await;
    world.cloud.fail_next("EnsureLoadBalancer", AdapterError::new(Reason::VendorAuth, "token expired"));
    let plan = world.planned().await;
    assert!(plan.trouble.is_some_and(|it| it.contains("token expired")), "the adapter refuses to answer");
    assert_eq!((plan.reason.as_deref(), plan.vendor.len()), (Some("VENDOR_AUTH"), 0));
}

/// Refused settings are not retried for some time. After that, a dry run plans these settings again, with their node selector.
#[tokio::test(start_paused = true)]
async fn rehearsal_keeps_selector_in_force() {
    const SELECTOR: &str = "lb.cloudadapter.dev/node-selector";
    let world = World::start().await;
    let put = |name: &str, zone: &str| {
        let it = node(name).provider_id(&format!("sim://r1/{name}")).at("10.0.0.1");
        world.kube.put::<Node>(it.label("zone", zone));
    };
    put("a", "a");
    put("b", "c");
    world.service(service("web").port(80).annotation(SELECTOR, "zone=a"));
    world.eventually_ingress_of("web").await;
    world
        .asks_for_a_port_that_is_refused(|it| {
            it.metadata.annotations.as_mut().unwrap().insert(SELECTOR.to_owned(), "zone=b".to_owned());
        })
        .await;
    // The settings are due for a retry by now, so the page tries them.
    world.planned().await;

    world.is_refused_again_and_gets_nodes(|| put("b", "a"), &["a", "b"]).await;
    world.stop().await;
}
