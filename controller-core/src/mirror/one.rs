//! Follows one Kubernetes object by its name. The object need not exist, and the controller may lack the permission to read the object.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::StreamExt as _;
use kube::{Api, Resource, runtime::watcher::watch_object};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::kubernetes::text;

/// Delay before a retry after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// Calls `observe` with the object whenever the object may have changed, and with `None` while the object does not exist or cannot be read.
/// Never returns; drop the future to stop.
///
/// An error that prevents reading is logged once, not at each attempt. The cost is one listing of one object at the start and after each
/// broken connection, and otherwise one watch.
pub async fn follow_one<K>(api: Api<K>, name: &str, mut observe: impl FnMut(Option<K>))
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let kind = K::kind(&());
    let mut broken = false;
    loop {
        let error = {
            let mut events = pin!(watch_object(api.clone(), name));
            loop {
                match events.next().await {
                    Some(Ok(found)) => {
                        if std::mem::take(&mut broken) {
                            info!(kind = %kind, name, "The object can be watched again");
                        }
                        observe(found);
                    }
                    Some(Err(error)) => break text(error),
                    None => break "the watch ended".to_owned(),
                }
            }
        };
        // Until the next successful read, the object may change unnoticed, so it counts as missing.
        observe(None);
        if !std::mem::replace(&mut broken, true) {
            warn!(kind = %kind, name, error, "Cannot read the object; treating the object as missing");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, Mutex},
    };

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::{
        mirror::ObjectName,
        testing::{FakeKube, Fault, Verb, eventually},
    };

    fn config_map(name: &str, value: &str) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(name.to_owned());
        map.metadata.namespace = Some("default".to_owned());
        map.data = Some(BTreeMap::from([("v".to_owned(), value.to_owned())]));
        map
    }

    #[tokio::test(start_paused = true)]
    async fn one_object_is_followed_even_if_missing_or_unreadable() {
        let kube = FakeKube::new();
        kube.put::<ConfigMap>(config_map("other", "1"));
        kube.order(Fault::status(403).on(Verb::List, "configmaps").times(3));
        let (client, seen) = (kube.client(), Arc::new(Mutex::new(Vec::new())));
        let writer = Arc::clone(&seen);
        let follow = follow_one(Api::default_namespaced(client), "one", move |found: Option<ConfigMap>| {
            let value = found.and_then(|map| map.data?.remove("v"));
            writer.lock().unwrap().push(value);
        });
        let last = || seen.lock().unwrap().last().cloned();
        let some = |value: &str| Some(Some(value.to_owned()));
        let scenario = async {
            eventually("the right to read is there", || seen.lock().unwrap().len() == 4).await;
            assert_eq!(*seen.lock().unwrap(), [None, None, None, None], "but the object is missing");
            kube.put::<ConfigMap>(config_map("one", "1"));
            eventually("the object exists", || last() == some("1")).await;
            kube.put::<ConfigMap>(config_map("one", "2"));
            kube.put::<ConfigMap>(config_map("other", "3"));
            eventually("the object changes", || last() == some("2")).await;
            kube.compact();
            kube.order(Fault::status(403).on(Verb::List, "configmaps").times(1));
            eventually("the object cannot be read", || last() == Some(None)).await;
            eventually("the object is read again", || last() == some("2")).await;
            kube.delete::<ConfigMap>(&ObjectName::namespaced("default", "one"));
            eventually("the object is deleted", || last() == Some(None)).await;
        };
        tokio::select! {
            () = follow => (),
            () = scenario => (),
        }
    }
}
