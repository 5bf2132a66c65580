//! Follows one Kubernetes object by its name. It need not be there, and there need be no right to read it.

use std::{fmt::Debug, pin::pin, time::Duration};

use futures::StreamExt as _;
use kube::{Api, Resource, runtime::watcher::watch_object};
use serde::de::DeserializeOwned;
use tracing::{info, warn};

use super::kubernetes::text;

/// After what broke it is tried again so soon.
const PAUSE: Duration = Duration::from_secs(10);

/// Calls `look` with the object whenever it may have changed, and with `None` as long as it is not there or nobody knows. Never ends; drop
/// it to stop.
///
/// What keeps it from being read is logged once and not at each try.
/// Cost: one listing of one object at start and after each broken connection, else one watch.
pub async fn follow_one<K>(api: Api<K>, name: &str, mut look: impl FnMut(Option<K>))
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
                            info!(kind = %kind, name, "Can be read again");
                        }
                        look(found);
                    }
                    Some(Err(error)) => break text(error),
                    None => break "the watch ended".to_owned(),
                }
            }
        };
        // What happens to it meanwhile nobody sees.
        look(None);
        if !std::mem::replace(&mut broken, true) {
            warn!(kind = %kind, name, error, "Cannot be read, and counts as not there until it can");
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
    async fn one_object_is_seen_whether_it_is_there_or_may_be_read_or_not() {
        let kube = FakeKube::new();
        kube.put::<ConfigMap>(config_map("other", "1"));
        kube.order(Fault::status(403).on(Verb::List, "configmaps").times(3));
        let (client, seen) = (kube.client(), Arc::new(Mutex::new(Vec::new())));
        let told = Arc::clone(&seen);
        let follow = follow_one(Api::default_namespaced(client), "one", move |found: Option<ConfigMap>| {
            let value = found.and_then(|map| map.data?.remove("v"));
            told.lock().unwrap().push(value);
        });
        let last = || seen.lock().unwrap().last().cloned();
        let some = |value: &str| Some(Some(value.to_owned()));
        let meanwhile = async {
            eventually("it may be read", || seen.lock().unwrap().len() == 4).await;
            assert_eq!(*seen.lock().unwrap(), [None, None, None, None], "and is not there");
            kube.put::<ConfigMap>(config_map("one", "1"));
            eventually("it is there", || last() == some("1")).await;
            kube.put::<ConfigMap>(config_map("one", "2"));
            kube.put::<ConfigMap>(config_map("other", "3"));
            eventually("it changes", || last() == some("2")).await;
            kube.compact();
            kube.order(Fault::status(403).on(Verb::List, "configmaps").times(1));
            eventually("nobody knows", || last() == Some(None)).await;
            eventually("it is read again", || last() == some("2")).await;
            kube.delete::<ConfigMap>(&ObjectName::namespaced("default", "one"));
            eventually("it is gone", || last() == Some(None)).await;
        };
        tokio::select! {
            () = follow => (),
            () = meanwhile => (),
        }
    }
}
