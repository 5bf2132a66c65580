//! Tests the cost of each event, in calls to the adapter and in writes to the API server. The README has the same figures.

use std::{pin::Pin, time::Duration};

use cloud_api_proto::v1alpha1::InstanceState;
use controller_core::{
    mirror::ObjectName,
    testing::{instance, node},
};
use k8s_openapi::api::core::v1::Node;
use tokio::time::sleep;

use super::world::World;

const NODES: usize = 20;
/// Time after which every event has been handled, and the brake allows its maximum again.
const OVER: Duration = Duration::from_mins(11);

fn id(n: usize) -> String {
    format!("sim://north/i-{n}")
}

fn change(world: &World, n: usize, change: impl FnOnce(&mut Node)) {
    world.kube.change::<Node>(&ObjectName::cluster(format!("n{n}")), change);
}

fn set_ready(world: &World, n: usize, status: &str) {
    let again: Node = node("x").ready(status).build();
    change(world, n, |node| {
        node.status.get_or_insert_default().conditions = again.status.and_then(|status| status.conditions);
    });
}

fn lose(world: &World, n: usize) {
    world.cloud.end(&id(n));
    set_ready(world, n, "Unknown");
}

type Done<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

struct Row {
    name: &'static str,
    act: fn(&mut World) -> Done<'_>,
    calls: u32,
    /// Number of writes to Nodes.
    writes: usize,
    events: usize,
}

const fn row(
    name: &'static str,
    act: fn(&mut World) -> Done<'_>,
    calls: u32,
    writes: usize,
    events: usize,
) -> Row {
    Row { name, act, calls, writes, events }
}

fn at_once(act: impl FnOnce()) -> Done<'static> {
    act();
    Box::pin(async {})
}

#[expect(clippy::too_many_lines, reason = "a table")]
fn rows() -> Vec<Row> {
    vec![
        row("an hour without changes", |_| Box::pin(sleep(Duration::from_hours(1))), 0, 0, 0),
        row(
            "a restart",
            |world| {
                Box::pin(async {
                    world.stop().await;
                    world.start();
                })
            },
            0,
            0,
            0,
        ),
        row(
            "fifty heartbeats of each node, with labels and annotations of a user",
            |world| {
                Box::pin(async {
                    for beat in 0..50 {
                        for n in 0..NODES {
                            set_ready(world, n, "True");
                            change(world, n, |node| {
                                let annotations = node.metadata.annotations.get_or_insert_default();
                                annotations.insert("beat".to_owned(), beat.to_string());
                                let labels = node.metadata.labels.get_or_insert_default();
                                labels.insert("team".to_owned(), beat.to_string());
                            });
                        }
                        sleep(Duration::from_secs(10)).await;
                    }
                })
            },
            0,
            0,
            0,
        ),
        row(
            "the adapter is restarted",
            |world| {
                Box::pin(async {
                    world.cloud.away(true);
                    sleep(Duration::from_secs(5)).await;
                    world.cloud.away(false);
                })
            },
            0,
            0,
            0,
        ),
        row(
            "five new nodes whose instances were listed since",
            |world| {
                Box::pin(async {
                    for n in 100..105 {
                        world.kube.put::<Node>(node(&format!("n{n}")).uninitialised());
                        world.cloud.put(instance(&id(n)).named(&format!("n{n}")).at("10.0.0.1"));
                    }
                })
            },
            0,
            10,
            5,
        ),
        row(
            "five new nodes whose instances are not listed yet",
            |world| {
                Box::pin(async {
                    for n in 100..105 {
                        let name = format!("n{n}");
                        world.put_unlisted(&id(n), &name);
                        world.kube.put::<Node>(node(&name).uninitialised().ready("True"));
                    }
                })
            },
            1,
            10,
            5,
        ),
        row(
            "600 new nodes whose instances are not listed yet",
            |world| {
                Box::pin(async {
                    for n in 100..700 {
                        let name = format!("n{n}");
                        world.put_unlisted(&id(n), &name);
                        world.kube.put::<Node>(node(&name).uninitialised().ready("True"));
                    }
                })
            },
            // A call has up to 500 references.
            2,
            1200,
            600,
        ),
        row(
            "five new nodes whose instances stay invisible",
            |world| {
                Box::pin(async {
                    for n in 100..105 {
                        world.kube.put::<Node>(node(&format!("n{n}")).uninitialised().ready("True"));
                    }
                })
            },
            // The calls are made at once, and after 1 s, 2 s, 4 s and so on up to 256 s. All nodes share each call.
            10,
            0,
            5,
        ),
        row(
            "addresses and type of an instance change",
            |world| {
                let machine = instance(&id(1)).named("n1").at("10.0.0.1").external("192.0.2.1");
                world.cloud.put(machine.of_type("large"));
                at_once(|| ())
            },
            0,
            2,
            0,
        ),
        row(
            "another client edits one of the controller's labels",
            |world| {
                change(world, 1, |node| {
                    let labels = node.metadata.labels.get_or_insert_default();
                    labels.insert("topology.kubernetes.io/zone".to_owned(), "by-hand".to_owned());
                });
                at_once(|| ())
            },
            0,
            1,
            0,
        ),
        row(
            "all nodes are not ready, and their instances exist",
            |world| {
                (0..NODES).for_each(|n| set_ready(world, n, "Unknown"));
                at_once(|| ())
            },
            0,
            0,
            0,
        ),
        row(
            "an instance is switched off",
            |world| {
                world.cloud.put(instance(&id(1)).named("n1").at("10.0.0.1").state(InstanceState::Stopped));
                set_ready(world, 1, "Unknown");
                at_once(|| ())
            },
            0,
            1,
            0,
        ),
        row(
            "an instance is switched off, and on again",
            |world| {
                Box::pin(async {
                    let machine = || instance(&id(1)).named("n1").at("10.0.0.1");
                    world.cloud.put(machine().state(InstanceState::Stopped));
                    set_ready(world, 1, "Unknown");
                    sleep(Duration::from_mins(1)).await;
                    world.cloud.put(machine());
                    set_ready(world, 1, "True");
                })
            },
            0,
            2,
            0,
        ),
        row(
            "five instances are not listed any more, and not proven gone",
            |world| {
                for n in 0..5 {
                    world.cloud.edit(|state| drop(state.instances.remove(&id(n))));
                    set_ready(world, n, "Unknown");
                }
                at_once(|| ())
            },
            // The calls are made at once, and after 5 s, 10 s, 20 s and so on up to 300 s. All nodes share each call.
            8,
            0,
            5,
        ),
        row(
            "five instances are gone",
            |world| {
                (0..5).for_each(|n| lose(world, n));
                at_once(|| ())
            },
            2,
            5,
            5,
        ),
        row(
            "more instances are gone than may be deleted at once",
            |world| {
                (0..10).for_each(|n| lose(world, n));
                at_once(|| ())
            },
            // The cloud is asked twice, and the proof is renewed every 5 minutes.
            4,
            0,
            11,
        ),
    ]
}

// Behaviour: NI18, P34
#[tokio::test(start_paused = true)]
async fn each_action_costs_what_the_readme_says() {
    for Row { name, act, calls, writes, events } in rows() {
        let mut world = World::new();
        sleep(Duration::from_secs(20)).await;
        for n in 0..NODES {
            let name = format!("n{n}");
            world.cloud.put(instance(&id(n)).named(&name).at("10.0.0.1"));
            world.kube.put::<Node>(node(&name).uninitialised().ready("True"));
        }
        world.start();
        sleep(OVER).await;
        let count = |world: &World| {
            (world.cloud.calls("BatchGetInstances"), world.kube.writes().len(), world.kube.events().len())
        };
        let before = count(&world);
        assert_eq!(before, (0, 2 * NODES, NODES), "{NODES} new nodes");
        act(&mut world).await;
        sleep(OVER).await;
        let after = count(&world);
        let cost = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        assert_eq!(
            cost,
            (calls, writes, events),
            "calls, writes, Events of: {name}: {:#?}",
            world.kube.events()
        );
    }
}
