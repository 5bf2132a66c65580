//! The faults and their names.

use std::fmt;

use clap::ValueEnum;

/// One fault, as the author of an adapter might make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// GetInfo returns a different instance ID in each answer
    UnstableInfo,
    /// GetInfo returns the same instance ID for every process
    EternalInstanceId,
    /// WatchStatus and GetInfo make a vendor call before they answer
    StatusAsksTheVendor,
    /// Health checks answer SERVING for any name
    HealthAlwaysServing,
    /// Reflection is missing
    NoReflection,
    /// Requests with an enum value of a newer contract are refused
    StrictEnums,
    /// Session affinity is not reported as a capability, and is accepted nevertheless
    HiddenCapability,
    /// Errors carry no ErrorInfo
    NoErrorInfo,
    /// Errors about fields do not name the fields
    FieldNotNamed,
    /// Undeclared parameters are ignored
    UnknownParameterAccepted,
    /// Values that are too long or too large are cut instead of refused: strings to 256 bytes, ports to 16 bits
    CutsToFit,
    /// Errors have no retry delay
    NoRetryInfo,
    /// The vendor's 401 and 403 are reported as GONE
    AuthAsGone,
    /// Backends without a weight get weight 0
    UnsetIsZero,
    /// The vendor's request ID is not reported
    NoVendorRequestId,
    /// Errors of the vendor are reported together with the token that was sent
    SecretInErrors,
    /// Results of a batch are not in the order of the references
    BatchOrder,
    /// An invalid reference fails the whole batch
    BadRefFailsTheBatch,
    /// Instances have no zone
    NoZone,
    /// Gone instances are reported without evidence
    GoneWithoutEvidence,
    /// Gone instances stay NOT_VISIBLE for ever
    NeverGone,
    /// Provider IDs of other clouds are answered with GONE
    ForeignAsGone,
    /// A node name that no instance has is answered with GONE
    NameMissAsGone,
    /// An instance that is not in the listing is GONE
    NotListedAsGone,
    /// An empty listing makes all known instances GONE
    EmptyListAsGone,
    /// A failed look-up makes all its instances GONE
    FailedLookUpAsGone,
    /// The checksum of a listing is wrong
    WrongChecksum,
    /// A watch of instances never sends Synced, and never ends
    NeverSynced,
    /// A watch begins without Reset
    NoReset,
    /// A watch with a token skips the events since the token
    ResumesFromNow,
    /// A page of instances that cannot be read ends the listing as if it were complete
    SyncedAfterBrokenPage,
    /// A vendor error for the first page of instances is an empty listing
    EmptyListOnError,
    /// The first instance of each page is lost, except on the first page
    LosesItemsBetweenPages,
    /// A whole listing is sent as one message
    OneGiantChunk,
    /// Look-ups with max_staleness = 0 are answered from the last listing
    StaleLiveReads,
    /// Fingerprints change with each listing
    RestlessFingerprint,
    /// Fingerprints never change
    FrozenFingerprint,
    /// Load balancers become ACTIVE without an address
    ActiveWithoutAddress,
    /// Each Ensure of a finished load balancer writes a tag with the time
    RewritesOnRepeat,
    /// Each Ensure lists the vendor's load balancers again
    NoopAsksTheVendor,
    /// The applied state is stored in memory, not in a tag
    HashInMemory,
    /// The owner of a load balancer is stored in memory, not in tags
    ForgetsTags,
    /// Names are random, and tags are written at the end: a crash before the tags are written leaks a load balancer
    LeaksOnCrash,
    /// An Ensure during another change of the load balancer is refused
    RefusesWhileBusy,
    /// Fences are ignored
    IgnoresFences,
    /// Deleting a load balancer that never existed is an error
    DeleteOfNothingFails,
    /// Deletions identify the load balancer only by the vendor ID in the request
    DeletesByIdAlone,
    /// Deleting a load balancer that is being created is answered with ABSENT and does nothing
    DeleteMissesWhatIsBeingMade,
    /// A deletion that is still in progress is answered with ABSENT
    AbsentTooEarly,
    /// After an ACTIVE answer, the same Ensure is answered from memory for ever
    CachesAnswers,
    /// Owners are identified by namespace and name: a recreated Service counts as the old one
    OwnersByName,
    /// Deleting removes the load balancers of all clusters whose owner has the same UID
    IgnoresTheCluster,
    /// A load balancer that the request names is changed and deleted regardless of its owner
    TouchesForeign,
    /// Load balancers without owner are adopted without a request
    AdoptsUnasked,
    /// A delta of a backend set is treated as the whole set
    DeltaIsFull,
    /// An unknown backend set is treated as an empty set
    UnknownSetIsEmpty,
    /// A change of members also rewrites the listeners
    MemberChangeTouchesListeners,
    /// A changed port recreates the load balancer
    PortChangeRecreates,
    /// A change that is impossible in place recreates the load balancer without permission
    RecreatesUnasked,
    /// A renamed owner gets another load balancer, and the old one stays
    RenameForgets,
    /// A load balancer in the vendor's error state stays PENDING
    ErrorStaysPending,
    /// The vendor's 409 during a change is reported as a final error
    ConflictIsFinal,
    /// Incomplete load balancers are not listed
    ListHidesUnfinished,
    /// A hash of another version is rewritten
    HashVersionRewrites,
    /// Dry runs change the cloud
    DryRunWrites,
    /// Source ranges are ignored
    SourceRangesIgnored,
    /// Requested names are accepted and ignored
    NamesIgnored,
    /// Existing routes are reported as APPLIED
    UnchangedAsApplied,
    /// Creating routes removes routes without owner in the same cluster's network
    RemovesForeignRoutes,
    /// Deletions of routes do not verify ownership
    DeletesUnownedRoutes,
    /// A conflicting route of another owner is taken over
    TakesOverRoutes,
    /// A route that fails also fails the batch
    BadRouteFailsTheBatch,
    /// Routes of a request beyond the hundredth are reported as APPLIED, and not created
    LosesLateRoutes,
    /// Vendor calls are not limited, and Cost does not include additional calls
    Overspends,
    /// Changes of load balancers wait until all pending creates are done, even if they are urgent
    CreatesGoFirst,
    /// The vendor's Retry-After is ignored
    IgnoresRetryAfter,
    /// A throttled batch is repeated as single look-ups
    FansOutThrottledBatch,
    /// 429 counts as any other failure, and the vendor's rate-limit headers are ignored
    ThrottleUnnoticed,
    /// The Cost of answers is always 0
    CostIsZero,
    /// The Cost of answers is at most one call
    CostTooLow,
    /// Callers' deadlines are ignored
    IgnoresDeadlines,
    /// A create whose response is lost is repeated without a client token
    RetriesCreates,
    /// New objects are expected to be in listings at once
    TrustsStaleReads,
    /// Requests that failed during a vendor outage are never retried
    GivesUpInOutages,
    /// A caller that closes its connection interrupts the creation of its load balancer
    DisconnectCuts,
    /// Callers need not authenticate
    AdmitsEverybody,
    /// Callers need a token, and every valid token has all roles
    IgnoresRoles,
    /// SIGTERM ends the process at once
    DiesOnSigterm,
    /// An invalid configuration file ends the process
    BadConfigStops,
    /// The vendor's token is read only at the start
    TokenReadOnce,
    /// The serving certificate is read only at the start
    CertificateReadOnce,
    /// Connections are never closed because of their age
    EternalConnections,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

impl Fault {
    /// Returns a sentence that describes the fault.
    #[must_use]
    pub fn sentence(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// Returns all faults with their descriptions, one per line.
    #[must_use]
    pub fn table() -> String {
        let lines = Self::value_variants().iter();
        lines.map(|fault| format!("{:<33}{}\n", fault.to_string(), fault.sentence())).collect()
    }
}
