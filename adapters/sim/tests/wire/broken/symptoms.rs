//! The symptom of each fault. The compiler checks that every fault has a symptom.

use std::{future::Future, panic::AssertUnwindSafe, pin::Pin};

use adapter_sim::broken::Fault;
use clap::ValueEnum as _;
use futures::{FutureExt as _, StreamExt as _};

use crate::{
    broken::balancers, broken::budget, broken::info, broken::instances, broken::making, broken::routes,
    broken::world::World,
};

type Seen = Pin<Box<dyn Future<Output = bool>>>;
/// Whether the symptom appears.
type Symptom = Box<dyn FnOnce(World) -> Seen>;

fn shows<F: Future<Output = bool> + 'static>(symptom: fn(World) -> F) -> Option<Symptom> {
    Some(Box::new(move |world| Box::pin(symptom(world))))
}

/// The test in a shared process. `None`: the fault needs a separate process, see `process`.
#[expect(clippy::too_many_lines, reason = "a table")]
fn symptom(fault: Fault) -> Option<Symptom> {
    match fault {
        Fault::UnstableInfo => shows(info::another_instance),
        Fault::EternalInstanceId => shows(info::one_instance_for_ever),
        Fault::StatusAsksTheVendor => shows(info::calls_for_info),
        Fault::HealthAlwaysServing => shows(info::nonsense_is_serving),
        Fault::NoReflection => shows(info::no_reflection),
        Fault::StrictEnums => shows(info::unknown_enum_refused),
        Fault::HiddenCapability => shows(info::affinity_hidden),
        Fault::NoErrorInfo => shows(info::error_without_info),
        Fault::FieldNotNamed => shows(info::error_without_field),
        Fault::NoRetryInfo => shows(info::error_without_delay),
        Fault::UnknownParameterAccepted => shows(making::unknown_parameter),
        Fault::CutsToFit => shows(making::port_too_large),
        Fault::UnsetIsZero => shows(making::weight_zero),
        Fault::NoVendorRequestId => shows(making::no_request_id),
        Fault::AuthAsGone => shows(instances::gone_by_401),
        Fault::BatchOrder => shows(instances::other_order),
        Fault::BadRefFailsTheBatch => shows(instances::batch_fails),
        Fault::NoZone => shows(instances::no_zone),
        Fault::GoneWithoutEvidence => shows(instances::no_evidence),
        Fault::NeverGone => shows(instances::never_gone),
        Fault::ForeignAsGone => shows(instances::foreign_gone),
        Fault::NameMissAsGone => shows(instances::name_gone),
        Fault::NotListedAsGone => shows(instances::unseen_gone),
        Fault::EmptyListAsGone => shows(instances::gone_by_an_empty_list),
        Fault::FailedLookUpAsGone => shows(instances::gone_by_404),
        Fault::WrongChecksum => shows(instances::wrong_checksum),
        Fault::NeverSynced => shows(instances::never_synced),
        Fault::NoReset => shows(instances::no_reset),
        Fault::ResumesFromNow => shows(instances::resumed_without_what_came),
        Fault::SyncedAfterBrokenPage => shows(instances::synced_after_broken_page),
        Fault::EmptyListOnError => shows(instances::empty_on_error),
        Fault::LosesItemsBetweenPages => shows(instances::items_lost),
        Fault::OneGiantChunk => shows(instances::giant_chunk),
        Fault::StaleLiveReads => shows(instances::stale),
        Fault::RestlessFingerprint => shows(instances::restless),
        Fault::FrozenFingerprint => shows(instances::frozen),
        Fault::ActiveWithoutAddress => shows(making::no_address),
        Fault::RewritesOnRepeat => shows(making::writes_on_repeat),
        Fault::NoopAsksTheVendor => shows(making::reads_on_repeat),
        Fault::HashInMemory => shows(making::no_hash_tag),
        Fault::ForgetsTags => shows(making::no_tags),
        Fault::LeaksOnCrash => shows(making::half_built_without_tags),
        Fault::RefusesWhileBusy => shows(making::second_refused),
        Fault::IgnoresFences => shows(making::stale_fence_taken),
        Fault::DeleteOfNothingFails => shows(balancers::nothing_to_delete),
        Fault::DeletesByIdAlone => shows(balancers::absent_without_an_id),
        Fault::DeleteMissesWhatIsBeingMade => shows(balancers::absent_while_made),
        Fault::AbsentTooEarly => shows(balancers::absent_while_there),
        Fault::CachesAnswers => shows(balancers::active_after_delete),
        Fault::OwnersByName => shows(balancers::one_for_both),
        Fault::IgnoresTheCluster => shows(balancers::namesake_deleted),
        Fault::TouchesForeign => shows(balancers::foreign_deleted),
        Fault::AdoptsUnasked => shows(balancers::adopted),
        Fault::DeltaIsFull => shows(balancers::members_lost),
        Fault::UnknownSetIsEmpty => shows(balancers::unknown_set_taken),
        Fault::MemberChangeTouchesListeners => shows(balancers::listener_touched),
        Fault::PortChangeRecreates => shows(balancers::recreated_for_a_port),
        Fault::RecreatesUnasked => shows(balancers::recreated_unasked),
        Fault::RenameForgets => shows(balancers::orphan_of_a_rename),
        Fault::ErrorStaysPending => shows(balancers::error_pending),
        Fault::ConflictIsFinal => shows(balancers::conflict_fails),
        Fault::ListHidesUnfinished => shows(balancers::unfinished_hidden),
        Fault::HashVersionRewrites => shows(balancers::old_hash_rewritten),
        Fault::DryRunWrites => shows(balancers::dry_run_writes),
        Fault::SourceRangesIgnored => shows(balancers::open_to_all),
        Fault::NamesIgnored => shows(balancers::called_otherwise),
        Fault::RetriesCreates => shows(balancers::made_twice),
        Fault::TrustsStaleReads => shows(balancers::made_again_unseen),
        Fault::GivesUpInOutages => shows(balancers::given_up),
        Fault::DisconnectCuts => shows(balancers::cut_by_hanging_up),
        Fault::UnchangedAsApplied => shows(routes::applied_again),
        Fault::RemovesForeignRoutes => shows(routes::foreign_removed),
        Fault::DeletesUnownedRoutes => shows(routes::foreign_deleted),
        Fault::TakesOverRoutes => shows(routes::foreign_taken),
        Fault::BadRouteFailsTheBatch => shows(routes::batch_fails),
        Fault::LosesLateRoutes => shows(routes::late_lost),
        Fault::Overspends => shows(budget::spends_freely),
        Fault::CreatesGoFirst => shows(balancers::change_waits_for_a_create),
        Fault::IgnoresRetryAfter => shows(budget::comes_back_early),
        Fault::FansOutThrottledBatch => shows(budget::one_by_one),
        Fault::ThrottleUnnoticed => shows(budget::throttle_is_outage),
        Fault::CostIsZero => shows(budget::free),
        Fault::CostTooLow => shows(budget::cheap),
        Fault::IgnoresDeadlines => shows(budget::waits_in_vain),
        Fault::AdmitsEverybody
        | Fault::IgnoresRoles
        | Fault::SecretInErrors
        | Fault::DiesOnSigterm
        | Fault::BadConfigStops
        | Fault::TokenReadOnce
        | Fault::CertificateReadOnce
        | Fault::EternalConnections => None,
    }
}

/// Number of worlds at once that do not disturb each other.
const AT_ONCE: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_has_a_symptom_only_where_injected() {
    let faults = Fault::value_variants().iter().copied().filter(|fault| symptom(*fault).is_some());
    let cases = faults.flat_map(|fault| [(fault, Some(fault)), (fault, None)]);
    let wrong: Vec<String> = futures::stream::iter(cases)
        .map(|(fault, made)| seen(fault, made))
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The failures of a symptom's test.
async fn seen(fault: Fault, made: Option<Fault>) -> Option<String> {
    let symptom = symptom(fault)?;
    let seen = AssertUnwindSafe(async { symptom(World::of(made).await).await }).catch_unwind().await;
    match (seen, made) {
        (Ok(true), Some(_)) | (Ok(false), None) => None,
        (Ok(_), Some(_)) => Some(format!("{fault}: the symptom is missing")),
        (Ok(_), None) => Some(format!("{fault}: the symptom appears without the fault")),
        (Err(_told), made) => Some(format!("{fault}, injected: {}: the test panicked", made.is_some())),
    }
}
