//! Verifies that the adapter's output contains no vendor credentials.

use std::{fmt::Debug, fs, time::Duration};

use cloud_api_proto::v1alpha1::{WatchInstancesRequest, WatchLoadBalancersRequest};

use crate::checks::prelude::*;

/// Time limit for one answer of the adapter, which may be busy.
const TOLERANCE: Duration = Duration::from_secs(30);
/// The HTTP statuses of refusals by the proxy. Each refusal repeats the credentials of the call, as the refusals of some vendors do.
const REFUSALS: [u16; 6] = [400, 404, 409, 500, 403, 401];
const AROUND: usize = 60;
const PAGES: [&str; 3] = ["metrics", "readyz", "healthz"];

/// reference/driver.md, "Callers and roles": the adapter never discloses secrets. Even if the vendor's answer repeats the credentials, no
/// part of them is in answers, metrics or the log.
pub(super) async fn canary(cx: &Context) -> Verdict {
    let Some(canary) = cx.params().samples.canary.clone() else {
        return Err(Stop::skipped("samples.canary is not set"));
    };
    let machines = cx.machines(2).await?;
    let search = SecretSearch {
        cx,
        canary,
        machine: machines.first().map(|one| one.provider_id.clone()).unwrap_or_default(),
    };
    let web = cx.cluster().balancer("web").backends(&machines);
    search.answer("EnsureLoadBalancer", &Ok(cx.converge(&web).await?))?;
    search.at_everything().await?;
    for (status, port) in REFUSALS.into_iter().zip(81..) {
        {
            let _refused = cx.proxy()?.inject(Rule::reads().next(2), Action::Echo(status));
            search.at_everything().await?;
        }
        let _refused = cx.proxy()?.inject(Rule::writes().next(1), Action::Echo(status));
        let change = web.clone().listeners([tcp(port)]).fence(cx.cluster().fence());
        search.answer("EnsureLoadBalancer", &cx.ensure(&change).await?)?;
        search.at_everything().await?;
    }
    search.at_pages().await?;
    search.at_log()
}

struct SecretSearch<'a> {
    cx: &'a Context,
    canary: String,
    /// An instance for which the adapter calls the vendor.
    machine: String,
}

impl SecretSearch<'_> {
    fn text(&self, place: &str, text: &str) -> Verdict {
        let wants = format!("vendor credentials are not in {place}");
        match text.split_once(&self.canary) {
            None => Ok(()),
            Some((before, after)) => {
                let skipped = before.chars().count().saturating_sub(AROUND);
                let before: String = before.chars().skip(skipped).collect();
                let after: String = after.chars().take(AROUND).collect();
                Err(Stop::failed(wants, format!("...{before}<samples.canary>{after}...")))
            }
        }
    }

    fn answer<T: Debug>(&self, method: &str, answer: &CallResult<T>) -> Verdict {
        let text = match answer {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => format!("{:?} {:?}", error.status, error.error),
        };
        self.text(&format!("answers: {method}"), &text)
    }

    /// Calls the read methods of the contract except `WatchRoutes`, and searches their answers.
    async fn at_everything(&self) -> Verdict {
        let (cx, cluster) = (self.cx, self.cx.cluster());
        let (node, service) = (cx.node()?, cx.service()?);
        self.answer("GetInfo", &service.info(&cluster.context()).await)?;
        let request = cluster.instances(cluster.live(), [self.machine.as_str()]);
        self.answer("BatchGetInstances", &node.batch_get_instances(request).await)?;
        let context = Some(cluster.live());
        let instances =
            WatchInstancesRequest { context: context.clone(), stop_when_synced: true, ..Default::default() };
        self.stream("WatchInstances", node.watch_instances(instances).await).await?;
        let balancers = WatchLoadBalancersRequest { context, stop_when_synced: true, ..Default::default() };
        self.stream("WatchLoadBalancers", service.watch_load_balancers(balancers).await).await?;
        let mut status = service.watch_status(&cluster.context()).await?;
        self.answer("WatchStatus", &status.next(TOLERANCE).await)
    }

    async fn stream<T: Debug>(&self, method: &str, watch: CallResult<Watch<T>>) -> Verdict {
        let mut watch = match watch {
            Ok(watch) => watch,
            Err(error) => return self.answer::<()>(method, &Err(error)),
        };
        loop {
            let next = watch.next(TOLERANCE).await;
            self.answer(method, &next)?;
            if !matches!(next, Ok(Some(_))) {
                return Ok(());
            }
        }
    }

    async fn at_pages(&self) -> Verdict {
        let Some(http) = &self.cx.lane().params.http else {
            self.cx.without(Need::Param("lanes[].http"));
            return Ok(());
        };
        #[expect(clippy::disallowed_methods, reason = "a scrape of the adapter is not a vendor call")]
        let client = reqwest::Client::builder().no_proxy().timeout(TOLERANCE).build();
        let unread =
            |error: reqwest::Error| Stop::failed(format!("lanes[].http {http} answers"), error.to_string());
        let client = client.map_err(unread)?;
        for page in PAGES {
            let answer = client.get(format!("{}/{page}", http.trim_end_matches('/'))).send().await;
            let text = answer.map_err(unread)?.text().await.map_err(unread)?;
            self.text(&format!("metrics and probes: /{page}"), &text)?;
        }
        Ok(())
    }

    fn at_log(&self) -> Verdict {
        let Some(path) = &self.cx.lane().params.log else {
            self.cx.without(Need::Param("lanes[].log"));
            return Ok(());
        };
        let log = fs::read(path);
        let log = log.map_err(|error| {
            Stop::failed(
                "lanes[].log is the file of the adapter's log",
                format!("{}: {error}", path.display()),
            )
        })?;
        let wants = "lanes[].log is the file of the adapter's log";
        expect::that(!log.is_empty(), wants, || format!("{}: is empty", path.display()))?;
        self.text("the log", &String::from_utf8_lossy(&log))
    }
}
