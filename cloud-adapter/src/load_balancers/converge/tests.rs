//! These tests show at which times a task writes. They use paused time.

mod cloud;
mod reads;

use std::time::Duration;

use cloud_api_proto::{
    Reason,
    v1alpha1::{
        Adoption, LoadBalancer, LoadBalancerAddress, LoadBalancerSpec, Owner, Recreate, load_balancer_address,
    },
};
use futures::future::join_all;
use tokio::time::timeout;

use super::{
    super::decide::End,
    super::goal::{Goal, Terms},
    *,
};
use crate::{
    auth::{Caller, Role},
    config::CollectionSettings,
    driver::{
        Adopter, DesiredLoadBalancer, Inheritance,
        testing::{CREATE_HORIZON, WriteOnly},
    },
    vendor::{
        Purpose,
        tests::{limits, read, vendor},
    },
};

fn purpose(priority: Priority) -> Purpose {
    let own = Purpose::own(priority, "test");
    Purpose { caller: Caller { role: Role::ServiceController, ..own.caller }, ..own }
}

fn converger<D: Driver>(vendor: &Arc<Vendor>, driver: D) -> Arc<Converger<D>> {
    let rpc = Rpc::testing(Arc::clone(vendor), None);
    rpc.replica.lead(1);
    let settings = CollectionSettings::aged(Duration::from_secs(60));
    let snapshot = Arc::new(Snapshot::new(settings, Duration::ZERO, rpc.metrics.clone()));
    Arc::new(Converger::new(Arc::new(driver), snapshot, &rpc, TaskTracker::new()))
}

fn key() -> LoadBalancerKey {
    LoadBalancerKey { cluster_id: "c".to_owned(), owner_uid: "web".to_owned() }
}

fn order(key: &LoadBalancerKey, priority: Priority) -> Order {
    let desired = DesiredLoadBalancer {
        key: key.clone(),
        owner: Owner::default(),
        cluster_name: String::new(),
        inheritance: Inheritance::ByName,
        spec: LoadBalancerSpec::default(),
        backends: Arc::new([]),
        hash: "1-0".to_owned(),
    };
    let terms = Terms { recreate: Recreate::Never, adoption: Adoption::Never, known: None };
    let fence = Fence { scope: "shard".to_owned(), epoch: 1, sequence: 1 };
    Order::new(Goal::Present(Arc::new(desired), terms), fence, purpose(priority), None)
}

/// Returns the time in milliseconds at which a write is sent. The write belongs to a resync and is queued behind a hundred other calls. If
/// `joined` is set, a user joins the task.
async fn written(joined: bool) -> u128 {
    let (fake, vendor) = vendor(&limits(10.0, 1));
    let converger = converger(&vendor, WriteOnly);
    let key = key();
    let resyncs = join_all((0..100).map(|object| {
        let session = vendor.session(purpose(Priority::Background)).about(object.to_string());
        async move { read(&session, "/resync").await }
    }));
    let orders = async {
        tokio::time::sleep(Duration::from_millis(250)).await;
        converger.submit(&key, order(&key, Priority::Background)).expect("a task");
        tokio::time::sleep(Duration::from_millis(250)).await;
        if joined {
            converger.submit(&key, order(&key, Priority::Interactive)).expect("the user joins the task");
        }
        tokio::time::sleep(Duration::from_secs(12)).await;
    };
    tokio::join!(resyncs, orders);
    fake.arrived().into_iter().find(|(path, _)| path == "/write").expect("written").1
}

#[tokio::test(start_paused = true)]
async fn joining_a_task_raises_its_queued_write() {
    let (alone, joined) = (written(false).await, written(true).await);
    assert!(alone > 9_000, "sent after all others: {alone} ms");
    assert!(joined < 1_000, "sent first after the user joined: {joined} ms");
}

#[test]
fn caller_that_joins_a_task_keeps_its_fence() {
    let mut running = order(&key(), Priority::Traffic);
    let fence = |epoch, sequence| Fence { epoch, sequence, ..order(&key(), Priority::Traffic).fence };
    for (newer, kept) in [(fence(1, 2), fence(1, 1)), (fence(2, 1), fence(2, 1))] {
        let joins = Order { fence: newer, ..order(&key(), Priority::Traffic) };
        assert_eq!(running.merge(joins), Ok(false));
        assert_eq!(running.fence, kept);
    }
}

#[tokio::test(start_paused = true)]
async fn busy_write_is_retried_with_backoff() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(409, None); 100]);
    let converger = converger(&vendor, WriteOnly);
    converger.submit(&key(), order(&key(), Priority::Traffic)).expect("a task");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let tries: Vec<u128> = fake.arrived().into_iter().map(|(_, at)| at / 1_000).collect();
    assert_eq!(tries, [0, 1, 2, 4, 8, 15, 30, 45], "in seconds; the driver polls after one");
}

#[tokio::test(start_paused = true)]
async fn former_properties_are_requested_once() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(409, None)]);
    let converger = converger(&vendor, WriteOnly);
    let former = LoadBalancerRecord::new(LoadBalancer::default(), ());
    converger.memories.of(&key(), |memory| memory.history.former = Some(Arc::new(former)));
    converger.submit(&key(), order(&key(), Priority::Traffic)).expect("a task");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let paths: Vec<String> = fake.arrived().into_iter().map(|(path, _)| path).take(2).collect();
    assert_eq!(paths, ["/write-again", "/write"]);
}

#[tokio::test(start_paused = true)]
async fn create_of_unknown_outcome_is_not_repeated_within_the_horizon() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(504, None)]);
    let converger = converger(&vendor, WriteOnly);
    converger.submit(&key(), order(&key(), Priority::Traffic)).expect("a task");
    tokio::time::sleep(CREATE_HORIZON * 2).await;
    let tries: Vec<u128> = fake.arrived().into_iter().map(|(_, at)| at).take(2).collect();
    let [first, second] = tries[..] else { panic!("recreated after several tries: {tries:?}") };
    assert!(second - first >= CREATE_HORIZON.as_millis(), "{tries:?}");
}

fn failure_text(handle: &Handle<()>) -> Option<String> {
    match &*handle.progress.borrow() {
        Progress::Working { failure, .. } => {
            failure.as_ref().and_then(|it| it.report(Instant::now(), Duration::ZERO))
        }
        Progress::Ended { .. } => None,
    }
}

#[tokio::test(start_paused = true)]
async fn failed_create_is_reported_after_ten_seconds() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(504, None)]);
    let converger = converger(&vendor, WriteOnly);
    let (_, handle) = converger.submit(&key(), order(&key(), Priority::Traffic)).expect("a task");
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(failure_text(&handle), None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let text = failure_text(&handle).expect("reported");
    assert!(text.starts_with("write failed (504, OUTCOME_UNKNOWN): "), "{text}");
    assert!(text.ends_with("; next try in about 109 s, after a check whether the write was made"), "{text}");
    tokio::time::sleep(CREATE_HORIZON * 2).await;
    assert_eq!((failure_text(&handle), fake.arrived().len() >= 2), (None, true), "the second write was made");
}

#[tokio::test(start_paused = true)]
async fn busy_write_is_reported_after_the_third_try() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(409, None); 100]);
    let converger = converger(&vendor, WriteOnly);
    let (_, handle) = converger.submit(&key(), order(&key(), Priority::Traffic)).expect("a task");
    let mut reports = Vec::new();
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        reports.push((fake.arrived().len(), failure_text(&handle).is_some()));
    }
    assert!(reports.iter().all(|(tries, reported)| *reported == (*tries >= 3)), "{reports:?}");
    let text = failure_text(&handle).expect("reported");
    assert!(text.contains(" failed (409, OPERATION_CONFLICT): "), "{text}");
    assert!(!text.contains("check"), "the write was not made: {text}");
}

/// While a load balancer is recreated, its addresses are free in the cloud, but no other Service gets them.
#[tokio::test(start_paused = true)]
async fn addresses_stay_reserved_while_a_load_balancer_is_recreated() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    let converger = converger(&vendor, WriteOnly);
    let address = |ip: &str| {
        let value = Some(load_balancer_address::Value::Ip(ip.to_owned()));
        LoadBalancerAddress { value, ..LoadBalancerAddress::default() }
    };
    let owner = |namespace: &str, name: &str| Owner {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..Owner::default()
    };
    let summary = LoadBalancer {
        addresses: vec![address("10.0.0.9")],
        owner: Some(owner("shop", "web")),
        ..LoadBalancer::default()
    };
    let former = Arc::new(LoadBalancerRecord::new(summary, ()));
    converger.memories.of(&key(), |memory| memory.history.former = Some(former));
    let asks = |uid: &str, owner: Owner, ip: &str| {
        let key = LoadBalancerKey { owner_uid: uid.to_owned(), ..key() };
        let mut order = order(&key, Priority::Traffic);
        let Goal::Present(desired, terms) = order.goal else { panic!("the goal is present") };
        let mut desired = (*desired).clone();
        desired.owner = owner;
        desired.spec.requested_addresses = vec![ip.to_owned()];
        order.goal = Goal::Present(Arc::new(desired), terms);
        ended(converger.submit(&key, order).expect("a task").1)
    };
    for other in [owner("shop", "evil"), owner("evil", "web")] {
        let refused = asks(&format!("{}-1", other.name), other.clone(), "10.0.0.9");
        let refused = timeout(CREATE_HORIZON, refused).await.expect("refused at once");
        let refused = refused.expect_err("the address belongs to another Service");
        assert!(refused.message.contains("shop/web, whose load balancer is being recreated"), "{refused}");
        assert_eq!(refused.violations[0].field, "spec.requested_addresses[0]");
    }
    assert_eq!(fake.arrived(), []);
    let created_again = asks("web-2", owner("shop", "web"), "10.0.0.9");
    assert!(timeout(CREATE_HORIZON, created_again).await.is_err(), "the task of the same Service goes on");
    assert_eq!(fake.arrived()[0].0, "/write");

    let adopter = Adopter {
        key: key(),
        owner: owner("shop", "web"),
        cluster_name: String::new(),
        inheritance: Inheritance::ByName,
    };
    let goal = Goal::Absent { adopter: adopter.into(), adoption: Adoption::Never, known: None };
    let gone = Order { goal, ..order(&key(), Priority::Traffic) };
    ended(converger.submit(&key(), gone).expect("a task").1).await.expect("no load balancer exists");
    assert_eq!(
        converger.memories.of(&key(), |memory| memory.history.former.clone()),
        None,
        "the owner is deleted"
    );
}

fn reported(converger: &Converger<WriteOnly>) -> (String, String) {
    let (tasks, more) = converger.report(10);
    let [task] = &tasks[..] else { panic!("{tasks:?}") };
    assert_eq!((task.key.as_str(), more), ("web", 0));
    (task.name.clone(), task.waits_for.clone())
}

#[tokio::test(start_paused = true)]
async fn task_reports_budget_wait_or_current_step() {
    let (_fake, vendor) = vendor(&limits(0.1, 1));
    read(&vendor.session(purpose(Priority::Traffic)), "/").await.expect("the call that uses up the burst");
    let converger = converger(&vendor, WriteOnly);
    let purpose = Purpose { object: Arc::from("Service shop/web (web)"), ..purpose(Priority::Traffic) };
    let order = Order { purpose, ..order(&key(), Priority::Traffic) };
    converger.submit(&key(), order).expect("a task");
    let name = "shop/web".to_owned();
    assert_eq!(reported(&converger), (name.clone(), "observes the cloud".to_owned()));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let sentence =
        "waits for the call budget of bucket compute: 0 calls ahead at 0.1 a second, next call in about 7 s";
    assert_eq!(reported(&converger), (name, sentence.to_owned()));
    assert_eq!(converger.report(0).1, 1, "the number of further tasks");
}

#[tokio::test(start_paused = true)]
async fn task_duration_counts_from_the_first_try() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(504, None); 4]);
    let converger = converger(&vendor, WriteOnly);
    let submit = |order| converger.submit(&key(), order).expect("a task").1;
    let wanted = || order(&key(), Priority::Traffic);
    let first = Instant::now();
    let refused = ended(submit(wanted())).await.expect_err("the vendor fails each try");
    assert_eq!(refused.reason, Reason::OutcomeUnknown);
    let again = submit(wanted());
    assert!(first.elapsed() > CREATE_HORIZON && again.began == first, "{:?}", again.began);

    let adopter = Adopter {
        key: key(),
        owner: Owner::default(),
        cluster_name: String::new(),
        inheritance: Inheritance::ByName,
    };
    let goal = Goal::Absent { adopter: adopter.into(), adoption: Adoption::Never, known: None };
    ended(submit(Order { goal, ..wanted() })).await.expect("no load balancer exists");
    assert!(submit(wanted()).began > first, "the next try is another step");
}

#[tokio::test(start_paused = true)]
async fn absence_is_proven_one_create_horizon_after_start() {
    let (_fake, vendor) = vendor(&limits(100.0, 10));
    let converger = converger(&vendor, WriteOnly);
    let start = Instant::now();
    let adopter = Adopter {
        key: key(),
        owner: Owner::default(),
        cluster_name: String::new(),
        inheritance: Inheritance::ByName,
    };
    let goal = Goal::Absent { adopter: adopter.into(), adoption: Adoption::Never, known: None };
    let order = Order { goal, ..order(&key(), Priority::Traffic) };
    ended(converger.submit(&key(), order).expect("a task").1).await.expect("no load balancer exists");
    assert!(
        start.elapsed() >= CREATE_HORIZON,
        "the previous leader may have created one: {:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn task_duration_begins_again_in_the_next_term() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(409, None); 100]);
    let converger = converger(&vendor, WriteOnly);
    let submit = || converger.submit(&key(), order(&key(), Priority::Traffic)).expect("a task").1;
    let first = submit();
    tokio::time::sleep(Duration::from_secs(10)).await;
    converger.replica.stand_by(None);
    let began = first.began;
    assert_eq!(ended(first).await.expect_err("the term is over").reason, Reason::NotLeader);
    converger.replica.lead(3);
    assert!(submit().began > began, "the caller has repeated its request to other replicas");
}

/// The vendor refuses a write of the older order, and the term ends during that write. The newest order then fails with the end of the
/// term.
#[tokio::test(start_paused = true)]
async fn newest_order_fails_with_the_end_of_the_term() {
    let (fake, vendor) = vendor(&limits(100.0, 10));
    fake.answers([(401, None)]);
    let converger = converger(&vendor, WriteOnly);
    converger.submit(&key(), order(&key(), Priority::Traffic)).expect("a task");
    while fake.arrived().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut newer = order(&key(), Priority::Traffic);
    let Goal::Present(desired, terms) = newer.goal else { panic!("the goal is present") };
    newer.goal =
        Goal::Present(Arc::new(DesiredLoadBalancer { hash: "1-1".to_owned(), ..(*desired).clone() }), terms);
    let (number, handle) = converger.submit(&key(), newer).expect("replaces the older order");
    converger.replica.stand_by(None);
    let result = handle.wait(number, Instant::now() + CREATE_HORIZON, &Meter::default()).await;
    let Ok(Progress::Ended { result: Err(error), .. }) = result else { panic!("{result:?}") };
    assert_eq!(error.reason, Reason::NotLeader);
}

async fn ended(handle: Handle<()>) -> Result<End<()>, AdapterError> {
    let mut progress = handle.progress;
    loop {
        if let Progress::Ended { result, .. } = &*progress.borrow_and_update() {
            return result.clone();
        }
        progress.changed().await.expect("the task ends");
    }
}
