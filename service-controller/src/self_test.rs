//! `service-controller self-test`: checks that a Service gets an address and is deleted cleanly. `helm test` runs it as a pod with
//! permissions of its own, because the image contains this binary but not kubectl.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Parser;
use controller_core::config::duration;
use controller_core::kube_api::within;
use controller_core::start;
use k8s_openapi::api::core::v1::{Event, Service};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{from_value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

/// The first argument of the binary, which selects this command.
pub(crate) const COMMAND: &str = "self-test";
const CHECK_EVERY: Duration = Duration::from_millis(500);

/// Create a Service of type LoadBalancer, wait for its address, delete it, and wait until it is gone. SIGTERM and SIGINT also delete the
/// Service.
///
/// The exit code is 0 if the Service got an address and is gone, otherwise 1. The test needs permission to create, get and delete Services
/// and to list Events.
#[derive(Debug, Parser)]
#[command(name = "service-controller self-test", version)]
struct Args {
    /// Kubeconfig file. Without it, the service account of the pod is used.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,

    /// Namespace of the Service.
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    namespace: String,

    /// Name of the Service. If a Service with this name exists, the test treats it as left over from an earlier test and deletes it first.
    #[arg(long, value_name = "NAME", default_value = "cloud-controllers-self-test")]
    name: String,

    /// The Service's `spec.loadBalancerClass`.
    #[arg(long, value_name = "CLASS")]
    load_balancer_class: Option<String>,

    /// Time limit for the deletion of an earlier test's Service and the assignment of the address, and again for the final deletion.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

/// Runs the test. `arguments` are the arguments after the name of the command.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = std::iter::once(OsString::from(COMMAND)).chain(arguments);
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let files: Vec<_> = args.kubeconfig.iter().filter(|file| !file.as_os_str().is_empty()).cloned().collect();
    start::run_once(&files, |client| async move { test(&client, &args, termination_signal()?).await })
}

fn termination_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
    })
}

async fn test(client: &Client, args: &Args, terminated: impl Future<Output = ()>) -> anyhow::Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), &args.namespace);
    let name = &args.name;
    tokio::select! {
        proved = prove(client, &services, args) => proved,
        () = terminated => match within(services.delete(name, &DeleteParams::default())).await {
            Err(error) if !error.is_not_found() => bail!("terminated by a signal; the Service {name} \
                                                          was not deleted: {error}"),
            _ => bail!("terminated by a signal; the Service {name} was deleted"),
        },
    }
}

async fn prove(client: &Client, services: &Api<Service>, args: &Args) -> anyhow::Result<()> {
    let (name, begin) = (&args.name, Instant::now());
    let service = wanted(args)?;
    // A Service from an earlier test is deleted first, because its address would prove nothing.
    remove(services, args).await.context("cannot delete the Service of an earlier test")?;
    let made_at = Instant::now();
    let left = || args.timeout.saturating_sub(begin.elapsed());
    make(services, &service, left()).await.with_context(|| format!("cannot create the Service {name}"))?;
    say(&format!("Created Service {}/{name}; waiting for its address", args.namespace))?;
    let served = until(left(), async || address(&within(services.get(name)).await?)).await;
    let took = made_at.elapsed();
    if let Err(error) = &served {
        // Printed at once, because the user may not wait for the deletion.
        say(&format!("No address {error:#}; {}", reasons(client, args).await))?;
    }
    // The Service is always deleted, because a load balancer costs money.
    let gone = remove(services, args).await;
    let address = served.context("the Service got no address")?;
    gone?;
    say(&format!("The Service got address {address} after {:.1} s, and was deleted", took.as_secs_f64()))
}

/// Creates the Service. A refusal is final. A call without an answer is retried, because the Service may have been created.
async fn make(services: &Api<Service>, service: &Service, timeout: Duration) -> anyhow::Result<()> {
    let mut unanswered = false;
    let made =
        until(timeout, async || match within(services.create(&PostParams::default(), service)).await {
            Ok(_) => Ok(Ok(())),
            Err(error) if error.status().is_none() => {
                unanswered = true;
                Err(error.into())
            }
            Err(error) if unanswered && error.status() == Some(409) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        });
    Ok(made.await??)
}

/// The Service has no pods, so clients reach nothing through it.
fn wanted(args: &Args) -> anyhow::Result<Service> {
    Ok(from_value(json!({
        "metadata": { "name": args.name },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": args.load_balancer_class,
            "ports": [{ "name": "http", "port": 80 }],
        },
    }))?)
}

/// Returns the address, or an error if the Service has no address.
fn address(service: &Service) -> anyhow::Result<String> {
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let entry = status.and_then(|balancer| balancer.ingress.as_ref()?.first());
    let address = entry.and_then(|entry| entry.ip.clone().or_else(|| entry.hostname.clone()));
    address.context("the Service has no address")
}

async fn remove(services: &Api<Service>, args: &Args) -> anyhow::Result<()> {
    let name = &args.name;
    until(args.timeout, async || match within(services.delete(name, &DeleteParams::default())).await {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => bail!("the Service {name} still exists: check whether its load balancer is deleted"),
    })
    .await
}

/// Texts of the Service's Events, which explain what the Service waits for.
async fn reasons(client: &Client, args: &Args) -> String {
    let events: Api<Event> = Api::namespaced(client.clone(), &args.namespace);
    let services: Api<Service> = Api::namespaced(client.clone(), &args.namespace);
    // Selects by UID, because Events of an earlier Service with the same name may still exist.
    let uid = within(services.get(&args.name)).await.ok().and_then(|service| service.metadata.uid);
    let of_service = format!("involvedObject.uid={}", uid.unwrap_or_default());
    let listed = within(events.list(&ListParams::default().fields(&of_service))).await;
    let said =
        listed.map(|list| list.items.into_iter().filter_map(|event| event.message).collect::<Vec<_>>());
    match said {
        Ok(said) if said.is_empty() => {
            "the Service has no Events: check whether the service-controller is running".to_owned()
        }
        Ok(said) => format!("its Events: {}", said.join("; ")),
        Err(error) => format!("cannot list its Events: {error}"),
    }
}

/// Repeats an operation until it succeeds. After the time limit, returns the last error.
async fn until<T>(timeout: Duration, mut look: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let deadline = Instant::now() + timeout;
    loop {
        match look().await {
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context(format!("after {:.0} s", timeout.as_secs_f64())));
            }
            Err(_not_yet) => sleep(CHECK_EVERY).await,
            done => return done,
        }
    }
}

fn say(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").context("standard output")
}

#[cfg(test)]
mod tests {
    use controller_core::mirror::ObjectName;
    use controller_core::testing::{self, FakeKube};

    use super::*;

    const NAME: &str = "cloud-controllers-self-test";

    fn args() -> Args {
        Args::try_parse_from([COMMAND, "--timeout=9s"]).unwrap()
    }

    /// Returns the methods of the writes to the API server. Consecutive writes with the same method count once.
    fn methods(kube: &FakeKube) -> Vec<String> {
        let mut methods: Vec<_> = kube.writes().into_iter().map(|write| write.method).collect();
        methods.dedup();
        methods
    }

    // Behaviour: P17
    #[tokio::test(start_paused = true)]
    async fn self_test_removes_remains_first() {
        let (kube, name) = (FakeKube::new(), ObjectName::namespaced("default", NAME));
        kube.put::<Service>(testing::service(NAME).ingress("192.0.2.9"));
        let (client, args) = (kube.client(), args());
        let controller = async {
            loop {
                sleep(CHECK_EVERY).await;
                let waits = |service: &Service| address(service).is_err();
                if kube.get::<Service>(&name).as_ref().is_some_and(waits) {
                    kube.put::<Service>(testing::service(NAME).ingress("192.0.2.1"));
                }
            }
        };
        tokio::select! {
            proved = test(&client, &args, std::future::pending()) => proved.unwrap(),
            () = controller => (),
        }
        assert_eq!(methods(&kube), ["DELETE", "POST", "DELETE"]);
        assert!(kube.get::<Service>(&name).is_none());
    }

    // Behaviour: P17
    #[tokio::test(start_paused = true)]
    async fn self_test_deletes_its_service_on_signal() {
        let (kube, name) = (FakeKube::new(), ObjectName::namespaced("default", NAME));
        let there = || kube.get::<Service>(&name).is_some();
        let terminated = async {
            sleep(CHECK_EVERY * 4).await;
            assert!(there(), "it waits for its address");
        };
        let ended = test(&kube.client(), &args(), terminated).await.unwrap_err().to_string();
        assert!(ended.starts_with("terminated by a signal") && ended.ends_with("was deleted"), "{ended}");
        assert!(!there());
    }

    fn service(status: &serde_json::Value) -> Service {
        from_value(json!({ "status": { "loadBalancer": status } })).unwrap()
    }

    #[test]
    fn self_test_accepts_ip_or_hostname() {
        assert_eq!(address(&service(&json!({ "ingress": [{ "ip": "192.0.2.1" }] }))).unwrap(), "192.0.2.1");
        assert_eq!(address(&service(&json!({ "ingress": [{ "hostname": "a.b" }] }))).unwrap(), "a.b");
        assert!(address(&service(&json!({ "ingress": [] }))).is_err());
        assert!(address(&Service::default()).is_err());
    }

    #[test]
    fn self_test_service_has_requested_class() {
        let class = |arguments: &[&str]| {
            let args = Args::try_parse_from([&[COMMAND], arguments].concat()).unwrap();
            wanted(&args).unwrap().spec.unwrap().load_balancer_class
        };
        assert_eq!(class(&[]), None);
        assert_eq!(class(&["--load-balancer-class=a.b/c"]).as_deref(), Some("a.b/c"));
        assert!(Args::try_parse_from([COMMAND, "--timeout=soon"]).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn self_test_polls_until_timeout() {
        let begin = Instant::now();
        let error = until(Duration::from_secs(9), async || -> anyhow::Result<()> { bail!("not yet") }).await;
        assert_eq!(format!("{:#}", error.unwrap_err()), "after 9 s: not yet");
        assert_eq!(begin.elapsed().as_secs(), 9);
        let mut looks = 0;
        let third = until(Duration::from_secs(9), async || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { bail!("not yet") }
        });
        assert_eq!(third.await.unwrap(), 3);
    }
}
