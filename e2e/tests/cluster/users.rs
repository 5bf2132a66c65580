//! Users that create and delete Services while something else happens.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use adapter_sim::simcloud::Operation;
use anyhow::{Context, ensure};
use e2e::{eventually, service};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::DeleteParams;
use tokio::time::Instant;

use crate::bed::{Bed, WITHIN};

const USERS: usize = 3;
/// One of this many Services is kept.
const STAYS: usize = 4;

#[derive(Debug, Default)]
pub(crate) struct Users {
    made: Cell<u64>,
    /// Existing Services, and the address that each got.
    there: RefCell<BTreeMap<String, String>>,
    longest: Cell<Duration>,
}

impl Users {
    /// Each user creates a Service, waits for its address and usually deletes it again. The users repeat this until `operation` ends, and
    /// once more after that.
    pub(crate) async fn work_while<T>(
        &self,
        bed: &Bed,
        what: &str,
        operation: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let over = Cell::new(false);
        let before = (self.made.get(), self.longest.take());
        let watched = async {
            let end = operation.await?;
            over.set(true);
            Ok(end)
        };
        let users = try_join_all((0..USERS).map(|number| self.work(bed, format!("{what}-{number}"), &over)));
        let (end, _all) = tokio::try_join!(watched, users)?;
        let made = self.made.get() - before.0;
        let longest = self.longest.get();
        bed.step(&format!(
            "{what}: {made} Services were served; the longest wait: {:.1} s",
            longest.as_secs_f64()
        ));
        self.longest.set(longest.max(before.1));
        Ok(end)
    }

    /// The longest wait for an address or for the deletion of a Service.
    pub(crate) fn longest(&self) -> Duration {
        self.longest.get()
    }

    /// Checks that each Service still has its address, from a load balancer of its own, and that none was created twice.
    pub(crate) async fn nothing_lost_or_twice(&self, bed: &Bed) -> anyhow::Result<()> {
        let services: Api<Service> = Api::default_namespaced(bed.client.clone());
        let there = self.there.borrow().clone();
        let state = bed.cloud.state().await?;
        for (name, address) in &there {
            ensure!(shown(&services.get(name).await?).as_ref() == Some(address), "{name} had {address}");
            let vips: Vec<_> = state.balancer(name)?.vips.iter().map(ToString::to_string).collect();
            ensure!(vips.contains(address), "{name} has {address}, but its load balancer {vips:?}");
        }
        let balancers: Vec<_> = state.load_balancers.iter().map(|it| &it.name).collect();
        ensure!(balancers.len() == there.len(), "{} Services, but load balancers {balancers:?}", there.len());
        let made = bed.cloud.counts().await?.of(Operation::CreateLoadBalancer);
        ensure!(
            made == self.made.get(),
            "{made} load balancers were created for {} Services",
            self.made.get()
        );
        bed.step(&format!(
            "{made} load balancers were created, one per Service; {} Services exist",
            there.len()
        ));
        Ok(())
    }

    async fn work(&self, bed: &Bed, user: String, over: &Cell<bool>) -> anyhow::Result<()> {
        for round in 0.. {
            let last = over.get();
            let name = format!("{user}-{round}");
            self.make(bed, &name).await?;
            if round % STAYS != 0 {
                self.delete(bed, &name).await?;
            }
            if last {
                break;
            }
        }
        Ok(())
    }

    /// Creates a Service that stays.
    pub(crate) async fn make(&self, bed: &Bed, name: &str) -> anyhow::Result<()> {
        let (begin, services) = (Instant::now(), Api::<Service>::default_namespaced(bed.client.clone()));
        service(name).port(80).create(&bed.client).await?;
        self.made.set(self.made.get() + 1);
        let address = eventually(&format!("Service {name} has an address"), WITHIN, || async {
            shown(&services.get(name).await?).context("no address")
        })
        .await?;
        self.waited(begin);
        self.there.borrow_mut().insert(name.to_owned(), address);
        Ok(())
    }

    async fn delete(&self, bed: &Bed, name: &str) -> anyhow::Result<()> {
        let (begin, services) = (Instant::now(), Api::<Service>::default_namespaced(bed.client.clone()));
        services.delete(name, &DeleteParams::default()).await.context("cannot delete the Service")?;
        eventually(&format!("Service {name} is deleted"), WITHIN, || async {
            let left = services.get_opt(name).await?;
            ensure!(left.is_none(), "finalizers {:?}", left.and_then(|it| it.metadata.finalizers));
            Ok(())
        })
        .await?;
        self.waited(begin);
        self.there.borrow_mut().remove(name);
        Ok(())
    }

    fn waited(&self, since: Instant) {
        self.longest.set(self.longest.get().max(since.elapsed()));
    }
}

pub(crate) fn shown(service: &Service) -> Option<String> {
    let status = service.status.as_ref()?.load_balancer.as_ref()?;
    status.ingress.as_ref()?.first()?.ip.clone()
}
