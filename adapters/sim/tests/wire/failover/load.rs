//! Controllers under load. They call the replica that serves, as the adapter's client does.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use adapter_client::{ChannelSecurity, Connection, Target};
use cloud_api_proto::{
    AdapterError, Reason,
    v1alpha1::{
        BatchGetInstancesRequest, InstanceRef, instance_ref::Ref,
        instance_service_client::InstanceServiceClient,
    },
};
use tokio::task::JoinSet;

use crate::{
    failover::replica::Replica,
    support::{live, until},
};

/// Running controllers. Dropping this value ends them.
pub(crate) struct Load {
    answers: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    _callers: JoinSet<()>,
}

impl Load {
    /// Starts controllers that repeat live requests for an instance. They send the requests to the replica that serves.
    pub(crate) fn start(replicas: &[&Replica]) -> Self {
        let addresses: Vec<_> = replicas.iter().map(|replica| replica.address.as_str()).collect();
        let target: Target = format!("static:///{}", addresses.join(",")).parse().expect("addresses");
        let connection = Connection::new(target, &ChannelSecurity::default()).expect("plain text");
        let client = InstanceServiceClient::new(connection.open().expect("addresses"));
        let (answers, failures) = (Arc::<AtomicU64>::default(), Arc::<Mutex<Vec<String>>>::default());
        let mut callers = JoinSet::new();
        for _ in 0..4 {
            let (mut client, answers, failures) =
                (client.clone(), Arc::clone(&answers), Arc::clone(&failures));
            callers.spawn(async move {
                loop {
                    let answer = client.batch_get_instances(request()).await.map_err(AdapterError::from);
                    match answer {
                        Ok(_) => {
                            answers.fetch_add(1, Ordering::Relaxed);
                        }
                        // This error is not a failure of the adapter, because the load itself causes too many concurrent requests.
                        Err(error) if error.reason == Reason::BudgetExhausted => {
                            let pause = error.retry_after.unwrap_or(Duration::from_millis(500));
                            tokio::time::sleep(pause).await;
                        }
                        Err(error) => failures.lock().expect("no panic").push(format!("{error:?}")),
                    }
                }
            });
        }
        Self { answers, failures, _callers: callers }
    }

    pub(crate) async fn answers(&self, more: u64) {
        let wanted = self.answers.load(Ordering::Relaxed) + more;
        until("answers", async || self.answers.load(Ordering::Relaxed) >= wanted).await;
    }

    #[track_caller]
    pub(crate) fn without_failures(&self) {
        let failures = self.failures.lock().expect("no panic");
        assert!(failures.is_empty(), "{failures:#?}");
    }
}

pub(crate) fn request() -> tonic::Request<BatchGetInstancesRequest> {
    let machine = Ref::ProviderId("sim://sim-1/i-0001".into());
    let refs = vec![InstanceRef { r#ref: Some(machine), ..InstanceRef::default() }];
    let mut request = tonic::Request::new(BatchGetInstancesRequest { context: Some(live()), refs });
    request.set_timeout(Duration::from_secs(30));
    request
}
