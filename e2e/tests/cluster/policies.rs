//! Tests of the chart's NetworkPolicies on the pod network, where they would be in effect. They are not enforced here, because the CNI
//! plugins `ptp` and `portmap` do not support them (which is tested, too). Instead, the test applies the policies to the pods, labels,
//! addresses and ports of the API server as <https://kubernetes.io/docs/concepts/services-networking/network-policies/> describes. Where
//! implementations differ, both interpretations must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use anyhow::{Context, bail, ensure};
use e2e::{CONTROLLERS, eventually, node, service};
use e2e_tools::cluster::layout::{API_SERVICE, FABRIC_ADDRESS, PODS};
use ipnet::IpNet;
use k8s_openapi::api::networking::v1::{IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::bed::{Bed, NAMESPACE, WITHIN, scenario};
use crate::inside::Container;
use crate::routes::remove_routes;

const ADAPTER: &str = "cloud-adapter";
const CLOUD: u16 = e2e_tools::cluster::layout::CLOUD_PORT;

#[test]
fn pod_network_works_across_nodes_and_policies_fit() {
    scenario(2, async |bed| {
        bed.install(&values(true)).await?;
        bed.until_initialised().await?;
        let routes = |n: usize| {
            move |state: &e2e::State| {
                ensure!(state.routes.len() == n, "{:?}", state.routes);
                Ok(())
            }
        };
        bed.until_cloud("both nodes have their route", routes(2)).await?;
        let before = policies(bed).await?;
        ensure!(before.is_empty(), "there are no policies on the host network: {before:?}");

        bed.upgrade(&values(false)).await?;
        let pods = eventually("all pods are on the pod network", WITHIN, || async {
            let pods = Container::of_release(bed).await?;
            placed(&pods).map(|()| pods)
        })
        .await?;
        bed.step("all pods are on the pod network, with the adapter and its callers on different nodes");
        service("web").port(80).create(&bed.client).await?;
        bed.address("web").await?;
        bed.cloud.create_instance("late").await?;
        node("late").pods("10.244.9.0/24").register(&bed.client).await?;
        bed.until_initialised().await?;
        bed.until_cloud("the late node has its route", routes(3)).await?;

        let policies = policies(bed).await?;
        each_has_its_own(&policies, &pods)?;
        let stranger = Container::idle(bed, "stranger", "node-2").await?;
        judge(&policies, &pods, &stranger)?;
        bed.step("the policies allow exactly the necessary connections");
        let adapter = named(&pods, ADAPTER)?.at("grpc")?;
        let reached = stranger.connect(adapter).await;
        ensure!(reached.is_ok(), "policies are enforced here now ({reached:?}): test them with packets, too");

        // On the pod network, the route-controller needs routes to reach the adapter, so it cannot restore lost routes. On the host
        // network, it can.
        remove_routes(bed).await?;
        let router = named(&pods, "route-controller")?;
        eventually("route-controller is cut off from the adapter", WITHIN, || async {
            ensure!(router.connect(adapter).await.is_err(), "it still reaches the adapter");
            Ok(())
        })
        .await?;
        bed.step("without routes, route-controller does not reach the adapter");
        bed.upgrade(&values(true)).await?;
        bed.until_cloud("back on the host network, all routes are created again", routes(3)).await
    });
}

/// Puts the adapter and its callers on different nodes.
fn values(host_network: bool) -> Value {
    let on = |node: &str| json!({ "nodeSelector": { "kubernetes.io/hostname": node } });
    json!({
        "hostNetwork": host_network, "adapter": on("node-1"),
        "nodeController": on("node-2"), "routeController": on("node-2"), "serviceController": on("node-2"),
    })
}

fn placed(pods: &[Container]) -> anyhow::Result<()> {
    let range: IpNet = PODS.parse()?;
    let names: Vec<_> = pods.iter().map(|pod| pod.name.as_str()).collect();
    ensure!(names == [ADAPTER, "node-controller", "route-controller", "service-controller"], "{names:?}");
    for pod in pods {
        let node = if pod.name == ADAPTER { "node-1" } else { "node-2" };
        let there = pod.node() == node && range.contains(&pod.address()?);
        ensure!(there, "{} is at {} on {}", pod.pod_name(), pod.address()?, pod.node());
    }
    Ok(())
}

async fn policies(bed: &Bed) -> anyhow::Result<Vec<NetworkPolicy>> {
    let policies: Api<NetworkPolicy> = Api::namespaced(bed.client.clone(), NAMESPACE);
    Ok(policies.list(&ListParams::default()).await?.items)
}

fn named<'a>(pods: &'a [Container], name: &str) -> anyhow::Result<&'a Container> {
    pods.iter().find(|pod| pod.name == name).with_context(|| format!("{name} does not exist"))
}

/// Each policy selects the pods of its component, and opens only ports of these pods.
fn each_has_its_own(policies: &[NetworkPolicy], pods: &[Container]) -> anyhow::Result<()> {
    let names: BTreeSet<_> = policies.iter().filter_map(|policy| policy.metadata.name.as_deref()).collect();
    let wanted: BTreeSet<_> = CONTROLLERS.into_iter().chain([ADAPTER]).collect();
    ensure!(names == wanted, "{names:?}");
    for policy in policies {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let about: Vec<_> = pods.iter().filter(|pod| is_about(policy, &End::of(pod))).collect();
        let [pod] = about[..] else { bail!("{name} selects {about:?}") };
        ensure!(pod.name == name, "{name} selects {}", pod.name);
        // These values allow no reader of metrics.
        let has: BTreeSet<_> = pod.port("grpc").into_iter().collect();
        let rules = policy.spec.iter().flat_map(|spec| spec.ingress.iter().flatten());
        let opened: BTreeSet<_> =
            rules.flat_map(|rule| rule.ports.iter().flatten()).filter_map(number).collect();
        ensure!(opened == has, "{name} opens {opened:?}, but its pod serves callers at {has:?}");
    }
    Ok(())
}

fn number(port: &NetworkPolicyPort) -> Option<u16> {
    match port.port.as_ref()? {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(_) => None,
    }
}

/// Checks the connections that must be possible and those that must not.
fn judge(policies: &[NetworkPolicy], pods: &[Container], stranger: &Container) -> anyhow::Result<()> {
    let adapter = named(pods, ADAPTER)?;
    let (grpc, http) = (adapter.port("grpc")?, adapter.port("http")?);
    let outside = |address: &str, port: u16| anyhow::Ok((End::outside(address)?, port));
    let api = [outside(FABRIC_ADDRESS, 6443)?, outside(API_SERVICE, 443)?];
    let cloud = outside(FABRIC_ADDRESS, CLOUD)?;
    let metadata = "169.254.169.254";
    let mut wanted = Vec::new();
    let mut tcp = |from: &Container, (to, port): &(End, u16), may: bool| {
        let packets = Packets { from: End::of(from), to: to.clone(), protocol: "TCP", port: *port };
        wanted.push((packets, may));
    };
    let to_adapter = (End::of(adapter), grpc);
    for name in CONTROLLERS {
        let controller = named(pods, name)?;
        let pages = (End::of(controller), controller.port("http")?);
        tcp(controller, &to_adapter, true);
        tcp(controller, &(End::of(adapter), http), false);
        tcp(controller, &cloud, false);
        tcp(controller, &outside(metadata, 80)?, false);
        tcp(controller, &outside(metadata, 443)?, false);
        tcp(controller, &outside("192.0.2.1", 80)?, false);
        tcp(controller, &(End::of(stranger), 80), false);
        tcp(stranger, &pages, false);
        tcp(stranger, &(End::of(controller), 22), false);
        for other in CONTROLLERS.into_iter().filter(|other| *other != name) {
            let other = named(pods, other)?;
            tcp(controller, &(End::of(other), other.port("http")?), false);
        }
    }
    tcp(adapter, &cloud, true);
    tcp(adapter, &to_adapter, true);
    tcp(adapter, &outside(metadata, 80)?, false);
    tcp(adapter, &outside(metadata, 443)?, false);
    tcp(stranger, &to_adapter, false);
    tcp(stranger, &(End::of(adapter), http), false);
    for pod in pods {
        for api in &api {
            tcp(pod, api, true);
        }
    }
    for pod in pods {
        for protocol in ["TCP", "UDP"] {
            let (from, to) = (End::of(pod), End::outside("10.96.0.10")?);
            wanted.push((Packets { from, to, protocol, port: 53 }, true));
        }
    }
    for (packets, may) in &wanted {
        for reading in [Reading::AddressesOfPodsToo, Reading::AddressesOfOthers] {
            let lets = lets_through(policies, packets, reading)?;
            ensure!(lets == *may, "{packets:?}, {reading:?}: {lets}");
        }
    }
    Ok(())
}

/// The packets that open a connection.
#[derive(Clone, Debug)]
struct Packets {
    from: End,
    to: End,
    protocol: &'static str,
    port: u16,
}

/// Which addresses an `ipBlock` matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    /// All addresses, as in Calico.
    AddressesOfPodsToo,
    /// Only addresses that belong to no pod, as in Cilium.
    AddressesOfOthers,
}

#[derive(Clone, Debug)]
struct End {
    /// Namespace and labels, if it is a pod.
    pod: Option<(String, BTreeMap<String, String>)>,
    address: Option<IpAddr>,
}

impl End {
    fn of(container: &Container) -> Self {
        let (meta, address) = (&container.pod.metadata, container.address().ok());
        let labels = meta.labels.clone().unwrap_or_default();
        Self { pod: Some((meta.namespace.clone().unwrap_or_default(), labels)), address }
    }

    fn outside(address: &str) -> anyhow::Result<Self> {
        Ok(Self { pod: None, address: Some(address.parse()?) })
    }
}

/// The policies of both ends must allow the packets.
fn lets_through(policies: &[NetworkPolicy], packets: &Packets, reading: Reading) -> anyhow::Result<bool> {
    for policy in policies {
        // This test does not support these fields, and the chart does not use them.
        let rules = json!(policy.spec).to_string();
        ensure!(!rules.contains("matchExpressions") && !rules.contains("endPort"), "{rules}");
    }
    let open = |kind, of, to| Direction { policies, kind, packets, reading }.open(of, to);
    Ok(open("Egress", &packets.from, &packets.to) && open("Ingress", &packets.to, &packets.from))
}

struct Direction<'a> {
    policies: &'a [NetworkPolicy],
    kind: &'static str,
    packets: &'a Packets,
    reading: Reading,
}

impl Direction<'_> {
    /// An end that no policy selects is open. Otherwise one of the policies must have a rule for the connection.
    fn open(&self, end: &End, other: &End) -> bool {
        let has_kind = |policy: &&NetworkPolicy| {
            let kinds = policy.spec.iter().flat_map(|spec| spec.policy_types.iter().flatten());
            kinds.into_iter().any(|kind| kind == self.kind)
        };
        let about: Vec<_> =
            self.policies.iter().filter(|policy| is_about(policy, end)).filter(has_kind).collect();
        about.is_empty() || about.iter().any(|policy| self.has_rule(policy, other))
    }

    fn has_rule(&self, policy: &NetworkPolicy, other: &End) -> bool {
        let Some(spec) = &policy.spec else { return false };
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let fits = |ports: &Option<Vec<NetworkPolicyPort>>, peers: &Option<Vec<NetworkPolicyPeer>>| {
            self.fits_port(ports.as_deref().unwrap_or_default())
                && self.fits_peer(namespace, peers.as_deref().unwrap_or_default(), other)
        };
        if self.kind == "Egress" {
            spec.egress.iter().flatten().any(|rule| fits(&rule.ports, &rule.to))
        } else {
            spec.ingress.iter().flatten().any(|rule| fits(&rule.ports, &rule.from))
        }
    }

    fn fits_port(&self, ports: &[NetworkPolicyPort]) -> bool {
        let fits = |port: &NetworkPolicyPort| {
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            protocol == self.packets.protocol
                && (port.port.is_none() || number(port) == Some(self.packets.port))
        };
        ports.is_empty() || ports.iter().any(fits)
    }

    fn fits_peer(&self, namespace: &str, peers: &[NetworkPolicyPeer], other: &End) -> bool {
        let fits = |peer: &NetworkPolicyPeer| match (&peer.ip_block, &other.pod) {
            (Some(block), None) => other.address.is_some_and(|address| holds(block, address)),
            (Some(block), Some(_)) => {
                self.reading == Reading::AddressesOfPodsToo
                    && other.address.is_some_and(|address| holds(block, address))
            }
            // The chart has no namespace selectors, which would open too much.
            (None, Some((at, labels))) => {
                peer.namespace_selector.is_none()
                    && at == namespace
                    && peer.pod_selector.as_ref().is_some_and(|selector| chooses(selector, labels))
            }
            (None, None) => false,
        };
        peers.is_empty() || peers.iter().any(fits)
    }
}

fn is_about(policy: &NetworkPolicy, end: &End) -> bool {
    let selector = policy.spec.as_ref().and_then(|spec| spec.pod_selector.as_ref());
    end.pod.as_ref().is_some_and(|(namespace, labels)| {
        Some(namespace) == policy.metadata.namespace.as_ref()
            && selector.is_none_or(|selector| chooses(selector, labels))
    })
}

fn chooses(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
}

fn holds(block: &IPBlock, address: IpAddr) -> bool {
    let within = |net: &String| net.parse::<IpNet>().is_ok_and(|net| net.contains(&address));
    within(&block.cidr) && !block.except.iter().flatten().any(within)
}
