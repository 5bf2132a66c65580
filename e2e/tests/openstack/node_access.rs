//! Tests nodes with security groups. Exactly the traffic of Services is allowed, and nothing is left afterwards.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Prefix of the name of a cluster's security group.
const OURS: &str = "load-balancers-to-nodes-";

/// Services open their node ports in a common security group, and close them again.
#[tokio::test]
async fn security_groups_open_exactly_the_node_ports() {
    let values = json!({ "adapter": { "openstack": { "loadBalancers": { "manageSecurityGroups": true } } } });
    scenario_with(&values, node_access).await;
}

async fn node_access(bed: &mut Bed) -> anyhow::Result<()> {
    join_many(bed, 2).await?;
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    let before = Guards::of(&project).await?;
    ensure!(before.rules.is_none(), "{before:?}");

    let mark = proxy.mark();
    service("web").port(80).port(443).create(&bed.client()).await?;
    bed.address("web").await?;
    bed.quiet("service-controller").await?;
    let calls = count(&proxy.since(mark).writes());
    print_calls("the first Service, of two ports, with two nodes", &calls);
    let wanted = [
        ("POST loadbalancers", 1),
        ("POST floatingips", 1),
        ("POST security-groups", 1),
        ("DELETE security-group-rules/*", 2),
        ("POST security-group-rules", 1),
        ("PUT ports/*", 2),
    ];
    ensure!(calls == counted(&wanted), "{calls:?}");
    let guards = Guards::of(&project).await?;
    ensure!(guards.rules == Some(node_ports(bed, &["web"]).await?), "{guards:?}");
    ensure!(guards.inside.len() == 2, "{guards:?}");

    let mark = proxy.mark();
    bed.expose("shop", 80).await?;
    bed.quiet("service-controller").await?;
    let calls = count(&proxy.since(mark).writes());
    print_calls("a second Service", &calls);
    let wanted = [("POST loadbalancers", 1), ("POST floatingips", 1), ("POST security-group-rules", 1)];
    ensure!(calls == counted(&wanted), "{calls:?}");

    bed.cluster.cloud.project.create_servers("node-3", 1).await?;
    let mark = proxy.mark();
    node("node-3").register(&bed.client()).await?;
    bed.initialised("node-3").await?;
    bed.wait_cloud("all pools have 3 members", |state| {
        let behind = |it: &Balancer| it.is_active() && it.listeners.iter().all(|one| one.members.len() == 3);
        state.balancers.iter().all(behind)
    })
    .await?;
    bed.quiet("service-controller").await?;
    let calls = count(&proxy.since(mark).writes());
    print_calls("a node joins", &calls);
    ensure!(calls == counted(&[("PUT pools/*/members", 3), ("PUT ports/*", 1)]), "{calls:?}");

    let mark = proxy.mark();
    bed.cluster.pods.get(ADAPTER)?.restart().await?;
    bed.ready().await?;
    for name in CONTROLLERS {
        let pod = bed.cluster.pods.get(name)?;
        pod.terminate().await?;
        pod.start()?;
        bed.quiet(name).await?;
    }
    ensure!(proxy.since(mark).writes().is_empty(), "after a restart: {}", proxy.since(mark).writes());

    bed.delete_service("web").await?;
    let guards = Guards::of(&project).await?;
    ensure!(guards.rules == Some(node_ports(bed, &["shop"]).await?), "{guards:?}");
    ensure!(guards.inside.len() == 3, "{guards:?}");
    let mark = proxy.mark();
    bed.delete_service("shop").await?;
    let calls = count(&proxy.since(mark).writes());
    print_calls("the last Service is deleted, with three nodes", &calls);
    let after = Guards::of(&project).await?;
    ensure!(after.rules.is_none() && after.inside.is_empty(), "{after:?}");
    let were = |guards: &Guards| {
        before.of_ports.keys().map(|id| guards.of_ports.get(id).cloned()).collect::<Vec<_>>()
    };
    ensure!(were(&after) == were(&before), "{before:?}\n{after:?}");
    Ok(())
}

async fn node_ports(bed: &Bed, services: &[&str]) -> anyhow::Result<BTreeSet<i64>> {
    let mut all = BTreeSet::new();
    for name in services {
        let spec = bed.services().get(name).await?.spec.unwrap_or_default();
        all.extend(spec.ports.into_iter().flatten().filter_map(|port| port.node_port).map(i64::from));
    }
    Ok(all)
}

/// The security groups of a project.
#[derive(Debug)]
pub(super) struct Guards {
    /// The ports that the cluster's group opens. `None`: the cluster has no group.
    pub(super) rules: Option<BTreeSet<i64>>,
    /// Ports that have the cluster's group.
    inside: BTreeSet<String>,
    /// The groups of each port.
    of_ports: BTreeMap<String, BTreeSet<String>>,
}

impl Guards {
    pub(super) async fn of(project: &Project) -> anyhow::Result<Self> {
        #[derive(serde::Deserialize)]
        struct Groups {
            security_groups: Vec<Group>,
        }
        #[derive(serde::Deserialize)]
        struct Group {
            id: String,
            name: String,
            security_group_rules: Vec<Rule>,
        }
        #[derive(Debug, serde::Deserialize)]
        struct Rule {
            direction: String,
            protocol: Option<String>,
            port_range_min: Option<i64>,
            port_range_max: Option<i64>,
            remote_ip_prefix: Option<String>,
        }
        #[derive(serde::Deserialize)]
        struct Ports {
            ports: Vec<Port>,
        }
        #[derive(serde::Deserialize)]
        struct Port {
            id: String,
            security_groups: BTreeSet<String>,
        }
        let Groups { security_groups } =
            from_value(project.member.get(Api::Network, "/v2.0/security-groups").await?)?;
        let ours: Vec<&Group> = security_groups.iter().filter(|one| one.name.starts_with(OURS)).collect();
        ensure!(ours.len() <= 1, "{} groups", ours.len());
        let mut rules = None;
        for group in &ours {
            let mut open = BTreeSet::new();
            for rule in &group.security_group_rules {
                let ours = rule.direction == "ingress"
                    && rule.protocol.as_deref() == Some("tcp")
                    && rule.remote_ip_prefix.as_deref() == Some("10.20.0.0/16")
                    && rule.port_range_min == rule.port_range_max;
                ensure!(ours, "{rule:?}");
                open.extend(rule.port_range_min);
            }
            rules = Some(open);
        }
        let Ports { ports } = from_value(project.member.get(Api::Network, "/v2.0/ports").await?)?;
        let is_in = |port: &&Port| ours.iter().any(|group| port.security_groups.contains(&group.id));
        let inside = ports.iter().filter(is_in).map(|port| port.id.clone()).collect();
        let of_ports = ports.iter().map(|port| (port.id.clone(), port.security_groups.clone())).collect();
        Ok(Self { rules, inside, of_ports })
    }
}
