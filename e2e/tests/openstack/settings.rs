//! Tests how Octavia stores the settings of a Service.

use super::*;

const KEY: &str = "lb.cloudadapter.dev";
/// Reference to a certificate in Octavia's form: a container in Barbican.
const CERTIFICATE: &str = "http://127.0.0.1:9311/v1/containers/11111111-2222-4333-8444-555555555555";

/// The adapter's `grants` setting that lets Services use the certificate.
fn grant() -> String {
    format!("*:certificate={CERTIFICATE}")
}

/// Octavia stores each setting: TLS termination, other protocols, health checks, timeouts, source ranges and affinity. Each is written
/// once, and not written again after a restart.
#[tokio::test]
async fn settings_of_services_are_stored_in_octavia() {
    let values = json!({ "adapter": { "grants": [grant()] } });
    scenario_with(&values, settings).await;
}

/// Same as `settings_of_services_are_stored_in_octavia`, for providers that cannot create everything in one call. The creation takes four
/// calls per port and two more calls, none of them twice, and a restart causes no call.
#[tokio::test]
async fn part_by_part_creation_has_the_same_result() {
    let values = json!({ "adapter": {
        "grants": [grant()], "openstack": { "loadBalancers": { "creation": "part-by-part" } },
    } });
    scenario_with(&values, part_by_part).await;
}

async fn part_by_part(bed: &mut Bed) -> anyhow::Result<()> {
    let writes = made(bed).await?;
    print_calls("two Services of four ports together, part by part", &writes);
    let wanted = [
        ("POST loadbalancers", 2),
        // The last write, with the hash of the desired state.
        ("PUT loadbalancers/*", 2),
        ("POST listeners", 4),
        ("POST pools", 4),
        ("POST healthmonitors", 4),
        ("PUT pools/*/members", 4),
        ("POST floatingips", 1),
    ];
    ensure!(writes == counted(&wanted), "{writes:?}");
    shown(&bed.cluster.cloud.project).await?;
    restarted(bed).await
}

async fn settings(bed: &mut Bed) -> anyhow::Result<()> {
    let writes = made(bed).await?;
    let (project, proxy) = (Arc::clone(&bed.cluster.cloud.project), bed.cluster.cloud.proxy.clone());
    ensure!(writes == counted(&[("POST loadbalancers", 2), ("POST floatingips", 1)]), "{writes:?}");
    shown(&project).await?;

    restarted(bed).await?;

    let mark = proxy.mark();
    let limit = json!({ "metadata": { "annotations": { format!("{KEY}/connection-limit"): null } } });
    bed.services().patch("all", &PatchParams::default(), &Patch::Merge(&limit)).await?;
    eventually("the limit is removed", bed.within, || async {
        let all = Parts::of(&project, "all").await?;
        [443, 80, 53].iter().try_for_each(|&port| all.listener(port, "/connection_limit", &json!(-1)))
    })
    .await?;
    bed.quiet("service-controller").await?;
    let writes = count(&proxy.since(mark).writes());
    print_calls("the limit is removed from three ports", &writes);
    ensure!(of(&writes, "PUT listeners/*") == 3, "{writes:?}");
    Ok(())
}

/// Waits until both Services have their load balancers, on two nodes, and returns the writes.
async fn made(bed: &mut Bed) -> anyhow::Result<BTreeMap<String, u64>> {
    join_many(bed, 2).await?;
    let proxy = bed.cluster.cloud.proxy.clone();
    let mark = proxy.mark();
    create(bed).await?;
    bed.address("all").await?;
    bed.address("inside").await?;
    bed.quiet("service-controller").await?;
    Ok(count(&proxy.since(mark).writes()))
}

/// Checks that a restart causes no writes. A value that Octavia returns in another form would be taken for a change.
pub(super) async fn restarted(bed: &mut Bed) -> anyhow::Result<()> {
    let proxy = bed.cluster.cloud.proxy.clone();
    let mark = proxy.mark();
    bed.cluster.pods.get(ADAPTER)?.restart().await?;
    bed.ready().await?;
    bed.cluster.pods.get("service-controller")?.restart().await?;
    bed.quiet("service-controller").await?;
    ensure!(proxy.since(mark).writes().is_empty(), "after a restart: {}", proxy.since(mark).writes());
    Ok(())
}

async fn create(bed: &Bed) -> anyhow::Result<()> {
    service("all")
        .port(443)
        .port(80)
        .port_of("UDP", 53)
        .annotation(&format!("{KEY}/port.443.listener-protocol"), "https")
        .annotation(&format!("{KEY}/port.443.tls-cert-refs"), CERTIFICATE)
        .annotation(&format!("{KEY}/port.80.listener-protocol"), "http")
        .annotation(&format!("{KEY}/port.80.algorithm"), "least-connections")
        .annotation(&format!("{KEY}/connection-limit"), "100")
        .annotation(&format!("{KEY}/idle-timeout"), "2m")
        .annotation(&format!("{KEY}/connect-timeout"), "7s")
        .annotation(&format!("{KEY}/health-check.interval"), "11s")
        .annotation(&format!("{KEY}/health-check.timeout"), "4s")
        .annotation(&format!("{KEY}/health-check.healthy-threshold"), "2")
        .annotation(&format!("{KEY}/health-check.unhealthy-threshold"), "5")
        .spec("loadBalancerSourceRanges", json!(["203.0.113.0/24", "198.51.100.7/32"]))
        .spec("sessionAffinity", json!("ClientIP"))
        .create(&bed.client())
        .await?;
    service("inside")
        .port(8080)
        .annotation(&format!("{KEY}/internal"), "true")
        .annotation(&format!("{KEY}/proxy-protocol"), "v2")
        .annotation(&format!("{KEY}/algorithm"), "source-ip")
        .spec("externalTrafficPolicy", json!("Local"))
        .create(&bed.client())
        .await?;
    Ok(())
}

async fn shown(project: &Project) -> anyhow::Result<()> {
    let all = Parts::of(project, "all").await?;
    let ranges = json!(["198.51.100.7/32", "203.0.113.0/24"]);
    for port in [443, 80, 53] {
        all.listener(port, "/connection_limit", &json!(100))?;
        all.listener(port, "/timeout_client_data", &json!(120_000))?;
        all.listener(port, "/timeout_member_data", &json!(120_000))?;
        all.listener(port, "/timeout_member_connect", &json!(7_000))?;
        all.listener(port, "/allowed_cidrs", &ranges)?;
        all.pool(port, "/session_persistence/type", &json!("SOURCE_IP"))?;
        for (field, value) in [("delay", 11), ("timeout", 4), ("max_retries", 2), ("max_retries_down", 5)] {
            all.monitor(port, &format!("/{field}"), &json!(value))?;
        }
    }
    all.listener(443, "/protocol", &json!("TERMINATED_HTTPS"))?;
    all.listener(443, "/default_tls_container_ref", &json!(CERTIFICATE))?;
    all.pool(443, "/protocol", &json!("HTTP"))?;
    all.listener(80, "/protocol", &json!("HTTP"))?;
    all.pool(80, "/lb_algorithm", &json!("LEAST_CONNECTIONS"))?;
    all.listener(53, "/protocol", &json!("UDP"))?;
    // The check uses a TCP port if there is one, because UDP node ports do not answer.
    all.monitor(53, "/type", &json!("TCP"))?;

    let inside = Parts::of(project, "inside").await?;
    inside.pool(8080, "/protocol", &json!("PROXYV2"))?;
    inside.pool(8080, "/lb_algorithm", &json!("SOURCE_IP"))?;
    inside.monitor(8080, "/type", &json!("HTTP"))?;
    inside.monitor(8080, "/url_path", &json!("/healthz"))?;
    let state = project.state().await?;
    ensure!(
        balancer(&state, "inside")?.floating_ip.is_none(),
        "the internal load balancer has a floating IP"
    );
    Ok(())
}

/// Parts of a load balancer, as Octavia returns them.
struct Parts {
    listeners: Vec<Value>,
    pools: Vec<Value>,
    monitors: Vec<Value>,
}

impl Parts {
    async fn of(project: &Project, service: &str) -> anyhow::Result<Self> {
        let state = project.state().await?;
        let id = &balancer(&state, service)?.id;
        let all = async |what: &str, query: &str| -> anyhow::Result<Vec<Value>> {
            let path = format!("/v2/lbaas/{what}?{query}");
            let answer = project.member.get(Api::LoadBalancer, &path).await?;
            Ok(from_value(answer.get(what).cloned().unwrap_or_default())?)
        };
        Ok(Self {
            listeners: all("listeners", &format!("load_balancer_id={id}")).await?,
            pools: all("pools", &format!("loadbalancer_id={id}")).await?,
            monitors: all("healthmonitors", "").await?,
        })
    }

    fn listener(&self, port: u16, pointer: &str, wanted: &Value) -> anyhow::Result<()> {
        same(self.listener_of(port)?, pointer, wanted)
    }

    fn pool(&self, port: u16, pointer: &str, wanted: &Value) -> anyhow::Result<()> {
        same(self.pool_of(port)?, pointer, wanted)
    }

    fn monitor(&self, port: u16, pointer: &str, wanted: &Value) -> anyhow::Result<()> {
        let id = &self.pool_of(port)?["healthmonitor_id"];
        let found = self.monitors.iter().find(|one| one["id"] == *id);
        same(found.with_context(|| format!("port {port} has no monitor"))?, pointer, wanted)
    }

    fn listener_of(&self, port: u16) -> anyhow::Result<&Value> {
        let found = self.listeners.iter().find(|one| one["protocol_port"] == port);
        found.with_context(|| format!("no listener of port {port}: {:?}", self.listeners))
    }

    fn pool_of(&self, port: u16) -> anyhow::Result<&Value> {
        let id = &self.listener_of(port)?["default_pool_id"];
        self.pools.iter().find(|one| one["id"] == *id).with_context(|| format!("port {port} has no pool"))
    }
}

fn same(part: &Value, pointer: &str, wanted: &Value) -> anyhow::Result<()> {
    let found = part.pointer(pointer).unwrap_or(&Value::Null);
    ensure!(found == wanted, "{pointer} is {found}, expected {wanted}: {part}");
    Ok(())
}
