//! An API server that is slow, throttles, fails, forgets or hangs, for all three controllers: nothing is removed or created twice, waiting
//! controllers say so, and all requests are carried out when the API server works again.

use adapter_sim::simcloud::Operation;
use e2e::{ApiProxy, Bed, CONTROLLERS, State, Trouble, node, seconds, service};

/// A fault, and whether controllers can work in spite of it.
const TROUBLES: [(Trouble, bool); 5] = [
    (Trouble::Slow(seconds(1)), true),
    (Trouble::TooOld, true),
    (Trouble::Throttled(seconds(1)), false),
    (Trouble::Fails, false),
    (Trouble::Hangs, false),
];

// Behaviour: P28
#[tokio::test]
async fn controllers_survive_api_server_faults() {
    let mut bed = Bed::install().await.unwrap();
    let proxy = ApiProxy::start(&bed.cluster.control_plane).await.unwrap();
    for name in CONTROLLERS {
        proxy.before(bed.cluster.pods.get(name).unwrap()).unwrap();
    }
    bed.start_pods().await.unwrap();
    wish(&bed, 0).await;
    granted(&bed, 0).await;

    for (number, (trouble, works)) in (1..).zip(TROUBLES) {
        bed.all_quiet().await.unwrap();
        let before = bed.cluster.cloud.state().await.unwrap();
        proxy.order(trouble);
        proxy.cut();
        wish(&bed, number).await;
        if works {
            granted(&bed, number).await;
        } else {
            for name in CONTROLLERS {
                bed.unready(name, "unreachable since").await.unwrap();
            }
            let meanwhile = bed.cluster.cloud.state().await.unwrap();
            let same =
                (&meanwhile.routes, &meanwhile.load_balancers) == (&before.routes, &before.load_balancers);
            assert!(same, "{trouble:?}: {meanwhile:#?}");
        }
        proxy.heal();
        bed.ready().await.unwrap();
        granted(&bed, number).await;
        kept(&before, &bed.cluster.cloud.state().await.unwrap(), trouble);
    }

    let all = 1 + u64::try_from(TROUBLES.len()).unwrap();
    let counts = bed.cluster.cloud.counts().await.unwrap();
    assert_eq!(counts.of(Operation::CreateLoadBalancer), all, "each load balancer is created once");
    assert_eq!(counts.of(Operation::DeleteLoadBalancer), 0);
}

/// An instance joins, and a user creates a Service.
async fn wish(bed: &Bed, number: usize) {
    let name = format!("n{number}");
    bed.cluster.cloud.create_instance(&name).await.unwrap();
    node(&name).pods(&format!("10.244.{number}.0/24")).register(&bed.client()).await.unwrap();
    service(&format!("s{number}")).port(80).create(&bed.client()).await.unwrap();
}

async fn granted(bed: &Bed, number: usize) {
    bed.initialised(&format!("n{number}")).await.unwrap();
    bed.address(&format!("s{number}")).await.unwrap();
    let destination = format!("10.244.{number}.0/24");
    bed.wait_cloud("the node has its route", |state| {
        state.routes.iter().any(|route| route.destination.to_string() == destination)
    })
    .await
    .unwrap();
}

/// Everything that existed before still exists.
fn kept(before: &State, after: &State, trouble: Trouble) {
    for route in &before.routes {
        assert!(after.routes.contains(route), "{trouble:?}: {route:?} is gone");
    }
    let there: Vec<&str> = after.load_balancers.iter().map(|it| it.id.as_str()).collect();
    for balancer in &before.load_balancers {
        assert!(there.contains(&balancer.id.as_str()), "{trouble:?}: {balancer:?} is gone");
    }
}
