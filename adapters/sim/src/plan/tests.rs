//! Tests of plans, which are executed on a simulated cloud. After each write, a new plan is computed, until no step is left. The first plan
//! must predict all writes.

mod adoption;
mod hostile;
mod random;

use cloud_adapter::{
    driver::Step as _,
    kit::testing::{self, hashed, tcp, udp, with, writer},
};
use cloud_api_proto::v1alpha1::{
    self as contract, Backend, HealthCheck, LoadBalancerSpec, LoadBalancerState, Protocol, SessionAffinity,
    health_check,
    listener::{Algorithm, Application, ProxyProtocol},
    load_balancer_spec, session_affinity,
};
use serde_json::{Value, json};

use super::*;
use crate::{
    responses::LoadBalancerPage,
    simcloud::{
        Cloud, Moment, Operation,
        call::Call,
        model::{self, HealthMonitor, Member, MonitorProtocol, PoolProtocol, Project},
        requests::{SetMembers, UpdateLoadBalancer},
    },
    translate,
};

type Record = LoadBalancerRecord<LoadBalancer>;

/// The maximum number of writes. No plan in these tests needs more.
const WRITES_MAX: usize = 60;

struct Bench {
    cloud: Cloud,
    now: Moment,
    writes: Vec<String>,
}

impl Bench {
    fn new() -> Self {
        let project = Project { account: "sim".into(), project: "demo".into(), region: "sim-1".into() };
        Self { cloud: Cloud::new(project), now: Moment::ZERO, writes: Vec::new() }
    }

    fn send(&mut self, call: &Call) -> Value {
        let answer = self.cloud.handle(call, self.now);
        assert!(answer.status.is_success(), "{}: {}", call.operation, answer.body);
        answer.body
    }

    fn observe(&mut self) -> Option<Record> {
        let body = self.send(&Call::new(Operation::ListLoadBalancers));
        let page: LoadBalancerPage = serde_json::from_value(body).expect("readable");
        assert!(page.load_balancers.len() <= 1, "a second load balancer was created");
        page.load_balancers.into_iter().next().map(translate::load_balancer)
    }

    fn plan(&mut self, desired: &DesiredLoadBalancer) -> Result<Vec<Step>, VendorError> {
        plan(desired, &writer(), self.observe().as_ref(), "sim-1")
    }

    fn execute(&mut self, step: &Step) {
        self.send(&call(step));
        self.writes.push(step.to_string());
        self.now += Moment::from_millis(300);
    }

    /// Executes at most `most` steps, each as the first step of a new plan. Returns whether no step is left.
    fn run(&mut self, desired: &DesiredLoadBalancer, most: usize) -> bool {
        for _ in 0..most {
            match self.plan(desired).expect("possible").first() {
                None => return true,
                Some(step) => self.execute(step),
            }
        }
        false
    }

    /// Executes steps until none is left, and asserts that the writes are those of the first plan. Returns the load balancer and the
    /// writes.
    #[track_caller]
    fn settled(&mut self, desired: &DesiredLoadBalancer) -> (Record, Vec<String>) {
        let planned: Vec<String> =
            self.plan(desired).expect("possible").iter().map(ToString::to_string).collect();
        self.writes.clear();
        assert!(self.run(desired, WRITES_MAX), "the plan does not become empty: {:#?}", self.writes);
        assert_eq!(self.writes, planned);
        let record = self.observe().expect("there");
        assert_eq!(record.summary.state(), LoadBalancerState::Active);
        assert_eq!(record.summary.applied_hash, desired.hash);
        (record, self.writes.clone())
    }
}

fn call(step: &Step) -> Call {
    let operation = Operation::ALL.into_iter().find(|one| one.to_string() == step.operation().name);
    let call = Call::new(operation.expect("the operation is in the table"));
    match step {
        Step::CreateLoadBalancer(request) => call.body(&body(request)),
        Step::AdoptLoadBalancer { id, change } => call.on(id).body(&body(change)),
        Step::RenameLoadBalancer { id, name } => {
            call.on(id).body(&body(&UpdateLoadBalancer { name: Some(name.clone()), tags: None }))
        }
        Step::UpdateLoadBalancer { balancer, change } => {
            call.on(balancer.id().expect("there")).body(&body(change))
        }
        Step::DeleteLoadBalancer { id } => call.on(id).query("cascade", "true"),
        Step::CreateListener { balancer, request } => {
            call.on(balancer.id().expect("there")).body(&body(request))
        }
        Step::UpdateListener { id, change, pool, .. } => {
            let pool_id = pool.as_ref().map(|pool| pool.id().expect("there").to_owned());
            call.on(id).body(&body(&UpdateListener { pool_id, ..change.clone() }))
        }
        Step::DeleteListener { id, .. } | Step::DeletePool { id, .. } => call.on(id),
        Step::CreatePool { balancer, request } => call.on(balancer).body(&body(request)),
        Step::UpdatePool { id, change, .. } => call.on(id).body(&body(change)),
        Step::SetMembers { pool, members, .. } => {
            call.on(pool).body(&body(&SetMembers { members: members.clone() }))
        }
        Step::UpdateMembers { pool, change, .. } => call.on(pool).body(&body(change)),
        Step::BatchRoutes(_) => panic!("not a step of a load balancer"),
    }
}

fn body(content: &impl serde::Serialize) -> Value {
    serde_json::to_value(content).expect("writes")
}

/// A load balancer for the Service `shop/web` with two backends.
fn web(listeners: impl Into<Vec<contract::Listener>>) -> DesiredLoadBalancer {
    testing::web(testing::spec(load_balancer_spec::Scheme::Internet, listeners), [1, 2].map(backend))
}

fn backend(n: u8) -> Backend {
    testing::backend(format!("sim://sim-1/i-{n}"), n)
}

fn members(record: &Record) -> Vec<(String, u16, u16)> {
    let members = record.detail.pools.iter().flat_map(|pool| pool.members.iter().filter_map(Read::known));
    members.map(|Member { address, port, weight, .. }| (address.to_string(), *port, *weight)).collect()
}

#[test]
fn new_load_balancer_costs_ports_plus_two_writes() {
    let (record, writes) = Bench::new().settled(&web([tcp(80), tcp(443), udp(53)]));
    assert_eq!(
        writes,
        [
            format!("create load balancer {}", ownership::balancer_name(&web([tcp(80)]))),
            "create listener tcp/80 with 2 members".into(),
            "create listener tcp/443 with 2 members".into(),
            "create listener udp/53 with 2 members".into(),
            "tag load balancer as complete".into(),
        ]
    );
    assert_eq!(record.summary.listeners, ["tcp/80", "tcp/443", "udp/53"]);
    assert_eq!(record.summary.backends, 6);
}

#[test]
fn plan_is_empty_in_the_desired_state() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    assert_eq!(bench.plan(&desired), Ok(vec![]));
}

#[test]
fn joining_node_costs_one_write_per_port_and_no_tags() {
    let mut bench = Bench::new();
    let mut desired = web([tcp(80), tcp(443)]);
    bench.settled(&desired);
    desired.backends = [1, 2, 3].map(backend).into();
    let (record, writes) = bench.settled(&desired);
    assert_eq!(
        writes,
        ["add 1 and remove 0 members of pool tcp-80", "add 1 and remove 0 members of pool tcp-443"]
    );
    assert_eq!(members(&record).len(), 6);
}

#[test]
fn different_members_are_sent_as_a_whole_set() {
    let mut bench = Bench::new();
    let mut desired = web([tcp(80)]);
    bench.settled(&desired);
    desired.backends = [backend(7)].into();
    assert_eq!(bench.settled(&desired).1, ["set the 1 members of pool tcp-80"]);
    desired.backends = [].into();
    assert_eq!(bench.settled(&desired).1, ["set the 0 members of pool tcp-80"]);
}

#[test]
fn draining_backend_gets_weight_zero() {
    let mut bench = Bench::new();
    let mut desired = web([tcp(80)]);
    bench.settled(&desired);
    let draining = Backend { draining: true, ..backend(1) };
    desired.backends = [draining, Backend { weight: Some(7), ..backend(2) }].into();
    let (record, _) = bench.settled(&desired);
    assert_eq!(members(&record), [("10.0.0.1".into(), 30_080, 0), ("10.0.0.2".into(), 30_080, 7)]);
}

#[test]
fn ports_come_before_others_go_and_listeners_go_before_their_pools() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80), tcp(443)]));
    let (record, writes) = bench.settled(&web([tcp(443), tcp(8080)]));
    assert_eq!(
        writes,
        [
            "create listener tcp/8080 with 2 members",
            "delete listener tcp/80",
            "delete pool tcp-80 (pool-0001)",
            "tag load balancer as complete",
        ]
    );
    assert_eq!(record.detail.pools.len(), 2);
}

#[test]
fn another_node_port_changes_the_members_in_place() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    let moved = contract::Listener { node_port: Some(31_000), ..tcp(80) };
    let (record, writes) = bench.settled(&web([moved]));
    assert_eq!(writes, ["set the 2 members of pool tcp-80", "tag load balancer as complete"]);
    assert_eq!(members(&record)[0].1, 31_000);
}

#[test]
fn proxy_protocol_switches_pools_without_a_gap() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    let proxied = contract::Listener { proxy_protocol: ProxyProtocol::V2.into(), ..tcp(80) };
    let (record, writes) = bench.settled(&web([proxied]));
    assert_eq!(
        writes,
        [
            "create pool tcp-80",
            "assign the new pool to listener tcp/80",
            "delete pool tcp-80 (pool-0001)",
            "tag load balancer as complete",
        ]
    );
    assert!(record.detail.pools[0].protocol.is(&PoolProtocol::Proxy));
}

#[test]
fn settings_of_listeners_and_pools_change_in_place() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    let desired = with(web([tcp(80)]), |spec| {
        spec.listeners[0].idle_timeout = Some(prost_types::Duration { seconds: 90, nanos: 1 });
        spec.source_ranges = vec!["192.0.2.7/24".into()];
        spec.session_affinity = Some(SessionAffinity {
            kind: session_affinity::Kind::ClientIp.into(),
            timeout: Some(prost_types::Duration { seconds: 600, nanos: 0 }),
        });
        spec.health_check = Some(HealthCheck {
            kind: health_check::Kind::Http.into(),
            port: Some(32_000),
            path: "/healthz".into(),
            ..HealthCheck::default()
        });
        spec.parameters = [("health-check-tls", "true"), ("algorithm", "least-connections")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        spec.listeners[0].set_algorithm(Algorithm::SourceIp);
        spec.listeners[0].set_application(Application::Https);
        spec.listeners[0].tls_refs = vec!["cert-1".into()];
        spec.listeners[0].connection_limit = Some(1000);
        spec.listeners[0].connect_timeout = Some(prost_types::Duration { seconds: 7, nanos: 0 });
        spec.listeners[0].app_protocol = "kubernetes.io/h2c".into();
    });
    let (record, writes) = bench.settled(&desired);
    assert_eq!(writes, ["update pool tcp-80", "update listener tcp/80", "tag load balancer as complete"]);
    let (listener, pool) = (&record.detail.listeners[0], &record.detail.pools[0]);
    assert_eq!(listener.idle_timeout, 91, "rounded up");
    assert_eq!(listener.allowed_cidrs, ["192.0.2.0/24".parse().expect("CIDR")]);
    let traffic = listener.traffic.known().expect("read");
    assert_eq!(
        (traffic.application, traffic.certificates.as_slice()),
        (model::Application::Https, &["cert-1".to_owned()][..])
    );
    assert_eq!((traffic.connection_limit, traffic.connect_timeout), (Some(1000), Some(7)));
    assert_eq!(traffic.app_protocol.as_deref(), Some("kubernetes.io/h2c"));
    assert!(
        pool.algorithm.is(&model::Algorithm::SourceIp),
        "the listener's algorithm takes precedence over the parameter"
    );
    let monitor = pool.health_monitor.known().cloned().flatten().expect("set");
    assert_eq!(monitor.protocol, MonitorProtocol::Https);
    assert_eq!((monitor.port, monitor.path.as_deref()), (Some(32_000), Some("/healthz")));
    // The next call removes all these settings again.
    let (record, _) = bench.settled(&web([tcp(80)]));
    assert_eq!(record.detail.pools[0].persistence, Read::Known(None));
    assert_eq!(record.detail.listeners[0].traffic, Read::Known(model::Traffic::default()));
}

#[test]
fn placement_is_immutable() {
    let mut bench = Bench::new();
    let placed = with(web([tcp(80)]), |spec| {
        spec.address_pool = "public".into();
        spec.subnets = vec!["s-1".into()];
        spec.size = "large".into();
        spec.zone = "z1".into();
    });
    let (record, _) = bench.settled(&placed);
    let error =
        plan(&web([tcp(80)]), &Fence::default(), Some(&record), "sim-1").expect_err("the placement differs");
    assert_eq!(error.fault, Fault::Immutable);
    assert_eq!(error.fields, ["spec.address_pool", "spec.subnets", "spec.size", "spec.zone"]);
}

#[test]
fn manual_change_is_corrected_without_a_tag_write() {
    let mut bench = Bench::new();
    let desired = web([tcp(80)]);
    bench.settled(&desired);
    let extra = json!({ "protocol": "TCP", "port": 22, "pool": { "protocol": "TCP" } });
    bench.send(&Call::new(Operation::CreateListener).on("lb-0001").body(&extra));
    bench.now += Moment::from_millis(300);
    bench.send(&Call::new(Operation::SetMembers).on("pool-0001").body(&json!({ "members": [] })));
    bench.now += Moment::from_millis(300);
    assert_eq!(
        bench.settled(&desired).1,
        ["set the 2 members of pool tcp-80", "delete listener tcp/22", "delete pool pool-0002"]
    );
}

#[test]
fn user_tags_and_adapter_tags_coexist() {
    let mut bench = Bench::new();
    let tagged = with(web([tcp(80)]), |spec| {
        spec.tags.insert("team".into(), "a".into());
    });
    let (record, _) = bench.settled(&tagged);
    assert_eq!(record.detail.tags.get("team").map(String::as_str), Some("a"));
    assert_eq!(record.summary.key, Some(tagged.key));
    let (record, writes) = bench.settled(&web([tcp(80)]));
    assert_eq!(writes, ["tag load balancer as complete"]);
    assert_eq!(record.detail.tags.get("team"), None);
}

#[test]
fn requested_name_costs_one_write() {
    let mut bench = Bench::new();
    let named = |name: &str| with(web([tcp(80)]), |spec| spec.name = name.into());
    let (record, writes) = bench.settled(&named("front"));
    assert_eq!((record.summary.name.as_str(), writes[0].as_str()), ("front", "create load balancer front"));
    let other = DesiredLoadBalancer { hash: record.summary.applied_hash, ..named("back") };
    let (renamed, writes) = bench.settled(&other);
    let id = renamed.summary.vendor_id.clone();
    assert_eq!(
        (renamed.summary.name.as_str(), writes),
        ("back", vec![format!("rename load balancer {id} to back")])
    );
    assert_eq!(id, record.summary.vendor_id);
    let plain = DesiredLoadBalancer { hash: other.hash, ..web([tcp(80)]) };
    assert_eq!(bench.plan(&plain), Ok(vec![]), "without a requested name, the existing name stays");
}

#[test]
fn immutable_fields_are_reported() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80)]));
    for (field, change) in [
        (
            "spec.scheme",
            (|spec| spec.scheme = load_balancer_spec::Scheme::Internal.into()) as fn(&mut LoadBalancerSpec),
        ),
        ("spec.ip_families", |spec| spec.ip_families.push(contract::IpFamily::Ipv6.into())),
        ("spec.requested_addresses", |spec| spec.requested_addresses = vec!["198.18.7.7".into()]),
    ] {
        let error = bench.plan(&with(web([tcp(80)]), change)).expect_err("cannot");
        assert_eq!(error.fault, Fault::Immutable, "{field}");
        assert!(error.message.starts_with(field), "{error}");
    }
}

// Behaviour: S28
#[test]
fn immutable_fields_do_not_block_other_changes() {
    type Set = fn(&mut LoadBalancerSpec);
    for (field, change) in [
        ("spec.scheme", (|spec| spec.scheme = load_balancer_spec::Scheme::Internal.into()) as Set),
        ("spec.requested_addresses", |spec| spec.requested_addresses = vec!["198.18.7.7".into()]),
        ("spec.size", |spec| spec.size = "large".into()),
    ] {
        let mut bench = Bench::new();
        let mut desired = web([tcp(80)]);
        let before = bench.settled(&desired).0;
        desired.backends = [1, 2, 3].map(backend).into();
        let other = with(desired.clone(), change);
        let steps = bench.plan(&other).expect("a node has joined");
        assert_eq!(steps.len(), 1, "{steps:?}");
        bench.execute(&steps[0]);
        let error = bench.plan(&other).expect_err("cannot");
        assert_eq!((error.fault, error.fields.as_slice()), (Fault::Immutable, &[field.to_owned()][..]));
        let there = bench.observe().expect("there");
        assert_eq!(there.summary.applied_hash, before.summary.applied_hash);
        assert!(there.summary.backends > before.summary.backends, "{field}");
        assert_eq!(bench.plan(&desired), Ok(vec![]), "the former state is restored");
    }
}

#[test]
fn unsupported_requests_are_refused_before_any_write() {
    type Set = fn(&mut LoadBalancerSpec);
    for (field, fault, change) in [
        (
            "spec.listeners[0].proxy_protocol",
            Fault::Unsupported,
            (|spec| {
                spec.listeners[0].proxy_protocol = ProxyProtocol::V1.into();
            }) as Set,
        ),
        ("spec.listeners[0].proxy_protocol", Fault::Unsupported, |spec| {
            spec.listeners[0].protocol = Protocol::Sctp.into();
            spec.listeners[0].proxy_protocol = ProxyProtocol::V2.into();
        }),
        ("spec.listeners[0].proxy_protocol", Fault::Unsupported, |spec| {
            spec.listeners[0].protocol = Protocol::Udp.into();
            spec.listeners[0].proxy_protocol = ProxyProtocol::V2.into();
        }),
        ("spec.listeners[0].algorithm", Fault::Unsupported, |spec| {
            spec.listeners[0].set_algorithm(Algorithm::SourceIpPort);
        }),
        ("spec.listeners[0].node_port", Fault::Invalid, |spec| spec.listeners[0].node_port = None),
        ("spec.listeners[0].idle_timeout", Fault::Invalid, |spec| {
            spec.listeners[0].idle_timeout = Some(prost_types::Duration::default());
        }),
        ("spec.source_ranges[0]", Fault::Invalid, |spec| spec.source_ranges.push("everybody".into())),
        ("spec.requested_addresses[0]", Fault::Invalid, |spec| {
            spec.requested_addresses.push("2001:db8::1".into());
        }),
        ("spec.tags[cloudadapter.dev/hash]", Fault::Invalid, |spec| {
            spec.tags.insert("cloudadapter.dev/hash".into(), "1-fake".into());
        }),
        ("spec.parameters[algorithm]", Fault::Invalid, |spec| {
            spec.parameters.insert("algorithm".into(), "random".into());
        }),
        ("spec.health_check.timeout", Fault::Invalid, |spec| {
            let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
            spec.health_check =
                Some(HealthCheck { interval: seconds(5), timeout: seconds(9), ..HealthCheck::default() });
        }),
    ] {
        let mut bench = Bench::new();
        let error = bench.plan(&with(web([tcp(80)]), change)).expect_err(field);
        assert!(error.message.starts_with(field), "{field}: {error}");
        assert_eq!(error.fault, fault, "{field}");
    }
}

#[test]
fn udp_and_sctp_need_another_health_check_port() {
    let probe = |protocol: Protocol, port| {
        let desired = with(web([tcp(53)]), |spec| {
            spec.listeners[0].protocol = protocol.into();
            let kind = health_check::Kind::Tcp.into();
            spec.health_check = Some(HealthCheck { kind, port, ..HealthCheck::default() });
        });
        let (record, _) = Bench::new().settled(&desired);
        record.detail.pools[0].health_monitor.known().cloned().flatten()
    };
    for protocol in [Protocol::Udp, Protocol::Sctp] {
        assert_eq!(probe(protocol, None), None, "{protocol:?}");
        let monitor = probe(protocol, Some(30_080));
        assert!(matches!(monitor, Some(HealthMonitor { port: Some(30_080), .. })), "{protocol:?}");
    }
}

#[test]
fn deletion_is_one_write() {
    let mut bench = Bench::new();
    bench.settled(&web([tcp(80), tcp(443)]));
    let record = bench.observe().expect("there");
    let steps = plan_deletion(&record.detail);
    assert_eq!(
        steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["delete load balancer lb-0001 with all its parts"]
    );
    bench.send(&call(&steps[0]));
    let record = bench.observe().expect("deletion in progress");
    assert_eq!(record.summary.state(), LoadBalancerState::Deleting);
    assert_eq!(plan_deletion(&record.detail), []);
    bench.now += Moment::from_millis(300);
    assert_eq!(bench.observe(), None);
}
