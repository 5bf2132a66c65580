//! Replaces vendor credentials, certificates and callers' tokens while the adapter works.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use adapter_client::Target;
use cloud_api_proto::v1alpha1::{Existence, Instance};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::TlsConnector;

use crate::{checks::prelude::*, params::LaneParams};

/// Extra time that the check grants to a busy adapter.
const TOLERANCE: Duration = Duration::from_secs(30);
/// Number of calls of each caller, before and after a change. An Ensure takes one or two seconds.
const CALLS: u64 = 10;
const CHANGES: u64 = 3;
/// Time within which connected callers read their tokens again.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// Number of consecutive vendor calls with new credentials after which the rotation counts as done. An adapter needs fewer calls to verify
/// new credentials.
const ROW: usize = 10;
const ROLES: [Role; 3] = [Role::NodeController, Role::ServiceController, Role::RouteController];

/// security.md, "Rotation": the adapter starts to use new vendor credentials while the old ones are valid, and then no longer uses the old
/// ones. No call fails because of the rotation.
pub(super) async fn credentials(cx: &Context) -> Verdict {
    let machines = cx.machines(2).await?;
    let web = cx.cluster().balancer("web").backends(&machines);
    cx.converge(&web).await?;
    let mark = cx.lane().proxy.as_ref().map(Proxy::mark);
    let mut load = Load::default();
    reads(cx, &mut load, &machines)?;
    writes(cx, &mut load, web)?;
    load.more(cx, CHANGES).await?;
    let before = mark.map(|mark| named(&since(cx, mark)));
    cx.hook(Hook::RotateCredentials, &[]).await?;
    in_force(cx, before).await?;
    cx.hook(Hook::RevokeCredentials, &[]).await?;
    load.more(cx, CHANGES).await?;
    load.whole("no call fails while vendor credentials are replaced")
}

fn reads(cx: &Context, load: &mut Load, machines: &[Instance]) -> Result<(), Stop> {
    let (api, cluster) = (cx.node()?.off_record(), cx.cluster());
    let ids: Vec<String> = machines.iter().map(|machine| machine.provider_id.clone()).collect();
    load.add(move |_| {
        let request = cluster.instances(cluster.live(), ids.iter().map(String::as_str));
        let api = api.clone();
        async move {
            for result in api.batch_get_instances(request).await?.results {
                expect::equal("an existing instance is found", &result.existence(), &Existence::Exists)?;
            }
            Ok(())
        }
    });
    Ok(())
}

/// Ensures a load balancer repeatedly, alternating between two ports.
fn writes(cx: &Context, load: &mut Load, web: Balancer) -> Result<(), Stop> {
    let (api, cluster) = (cx.service()?.off_record(), cx.cluster());
    load.add(move |n| {
        let port = if n % 2 == 0 { 81 } else { 80 };
        let request = web.clone().listeners([tcp(port)]).fence(cluster.fence()).request;
        let api = api.clone();
        async move { Ok(api.ensure_load_balancer(request).await.map(drop)?) }
    });
    Ok(())
}

fn since(cx: &Context, mark: usize) -> Calls {
    cx.lane().proxy.as_ref().map(|proxy| proxy.since(mark)).unwrap_or_default()
}

fn named(calls: &Calls) -> BTreeSet<u64> {
    calls.0.iter().filter_map(|call| call.credentials).collect()
}

/// Waits until vendor calls use other credentials. If the check cannot observe the credentials, it waits as long as an adapter may take to
/// reload.
async fn in_force(cx: &Context, before: Option<BTreeSet<u64>>) -> Result<(), Stop> {
    let reload = cx.params().timings.reload;
    let Some(before) = before.filter(|before| before.len() == 1) else {
        cx.note("the vendor calls do not show their credentials: the check waits for timings.reload");
        tokio::time::sleep(reload).await;
        return Ok(());
    };
    let wants = "the adapter starts to use new vendor credentials";
    cx.until(reload + TOLERANCE, wants, || async {
        let calls = since(cx, 0);
        let mut last = calls.0.iter().rev().filter(|call| call.ended.is_some()).take(ROW);
        Ok(last.all(|call| call.credentials.is_some_and(|one| !before.contains(&one))).then_some(()))
    })
    .await
}

/// security.md, "Rotation": new connections get the new serving certificate. The adapter accepts a new token in the same way as the old
/// one. No call of an existing or a new caller fails.
pub(super) async fn certificates_and_tokens(cx: &Context) -> Verdict {
    let context = cx.cluster().context();
    let mut load = Load::default();
    for role in ROLES {
        let (api, context) = (cx.api(role)?.off_record(), context.clone());
        load.add(move |_| {
            let (api, context) = (api.clone(), context.clone());
            async move { Ok(api.info(&context).await.map(drop)?) }
        });
    }
    let before = shown(cx).await?;
    load.more(cx, CALLS).await?;
    cx.hook(Hook::RotateServerCertificate, &[]).await?;
    let limit = cx.params().timings.reload + TOLERANCE;
    cx.until(limit, "a new connection gets the new certificate", || async {
        newcomers(cx).await?;
        Ok((shown(cx).await? != before).then_some(()))
    })
    .await?;
    load.more(cx, CALLS).await?;
    cx.hook(Hook::RotateTokens, &[]).await?;
    newcomers(cx).await?;
    let begun = Instant::now();
    while begun.elapsed() < READ_AGAIN {
        load.more(cx, CALLS).await?;
        newcomers(cx).await?;
    }
    load.whole("no call fails while certificate and tokens are replaced")
}

/// Connects each role again, with the current content of its files.
async fn newcomers(cx: &Context) -> Verdict {
    let context = cx.cluster().context();
    for role in ROLES {
        cx.connect(role)?.info(&context).await?;
    }
    Ok(())
}

async fn shown(cx: &Context) -> Result<CertificateDer<'static>, Stop> {
    let wants = "the adapter presents a certificate of its CA";
    certificate(&cx.lane().params).await.map_err(|error| Stop::failed(wants, format!("{error:#}")))
}

async fn certificate(params: &LaneParams) -> anyhow::Result<CertificateDer<'static>> {
    use anyhow::Context as _;
    let Target::Single { host, tls: true } = params.endpoint.parse()? else {
        anyhow::bail!("{}: secured.endpoint is not an https URL", params.endpoint);
    };
    let mut roots = rustls::RootCertStore::empty();
    let ca = params.tls.ca_file.as_ref().context("tls.caFile is not set")?;
    for root in CertificateDer::pem_file_iter(ca)? {
        roots.add(root?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(params.tls.server_name.clone().unwrap_or_else(|| host.host.clone()))?;
    let handshake = async {
        let stream = TcpStream::connect((host.host.as_str(), host.port)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    };
    let stream = tokio::time::timeout(TOLERANCE, handshake).await??;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    Ok(shown.context("none")?.clone().into_owned())
}
