//! The mistakes, by name.

use std::fmt;

use clap::ValueEnum;

/// One mistake of an adapter's author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// GetInfo names another instance of the adapter in each answer
    UnstableInfo,
    /// GetInfo names the same instance of the adapter whichever process answers
    EternalInstanceId,
    /// WatchStatus and GetInfo ask the vendor before they answer
    StatusAsksTheVendor,
    /// Health checks answer SERVING for whatever name is asked for
    HealthAlwaysServing,
    /// There is no reflection
    NoReflection,
    /// Requests with an enum value of a newer contract are refused
    StrictEnums,
    /// Session affinity is not among the capabilities, and is taken without a word
    HiddenCapability,
    /// Errors carry no ErrorInfo
    NoErrorInfo,
    /// Errors about fields do not name them
    FieldNotNamed,
    /// Parameters that nobody declared are ignored
    UnknownParameterAccepted,
    /// What is too long or too large is cut instead of refused: words to 256 bytes, ports to 16 bits
    CutsToFit,
    /// Errors do not say when to come back
    NoRetryInfo,
    /// The vendor's 401 and 403 mean that the instance is gone
    AuthAsGone,
    /// Backends without a weight get weight 0
    UnsetIsZero,
    /// The vendor's request ID is not told
    NoVendorRequestId,
    /// Whatever the vendor says is told with the token that was sent
    SecretInErrors,
    /// Results of a batch come in another order than the references
    BatchOrder,
    /// A reference that makes no sense fails the whole batch
    BadRefFailsTheBatch,
    /// Instances have no zone
    NoZone,
    /// Gone instances come without evidence
    GoneWithoutEvidence,
    /// Gone instances stay NOT_VISIBLE for ever
    NeverGone,
    /// Provider IDs of other clouds are answered with GONE
    ForeignAsGone,
    /// A node name that no instance has is answered with GONE
    NameMissAsGone,
    /// An instance that is not in the listing is GONE
    NotListedAsGone,
    /// An empty listing means that all instances that there were are gone
    EmptyListAsGone,
    /// A look-up that fails means that all its instances are gone
    FailedLookUpAsGone,
    /// The checksum of a listing is wrong
    WrongChecksum,
    /// A watch of instances never says that it is synced, and never ends
    NeverSynced,
    /// A watch begins without RESET
    NoReset,
    /// A watch with a token goes on from now, whatever came since the token
    ResumesFromNow,
    /// A page of instances that cannot be read ends the listing as if it were complete
    SyncedAfterBrokenPage,
    /// A vendor error for the first page of instances is an empty listing
    EmptyListOnError,
    /// The first instance of each page but the first is lost
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
    /// Each Ensure lists the vendor's load balancers anew
    NoopAsksTheVendor,
    /// What was applied is kept in memory, not in a tag
    HashInMemory,
    /// Whose a load balancer is is kept in memory, not in tags
    ForgetsTags,
    /// Names are random, and tags are set when all is done: a crash in between leaks
    LeaksOnCrash,
    /// An Ensure for a load balancer that is being worked on is refused
    RefusesWhileBusy,
    /// Fences are not looked at
    IgnoresFences,
    /// Deleting what never was is an error
    DeleteOfNothingFails,
    /// Deleting finds what the request names by its ID, and nothing else
    DeletesByIdAlone,
    /// Deleting what is still being made answers ABSENT and does nothing
    DeleteMissesWhatIsBeingMade,
    /// A deletion that is under way is answered with ABSENT
    AbsentTooEarly,
    /// An Ensure that was answered ACTIVE once is answered from memory for ever
    CachesAnswers,
    /// Owners are told apart by namespace and name: a Service that is made anew is the old one
    OwnersByName,
    /// Deleting removes the load balancers of all clusters whose owner has the same UID
    IgnoresTheCluster,
    /// A load balancer that the request names is taken and deleted whoever owns it
    TouchesForeign,
    /// Load balancers that are nobody's are taken over without being asked to
    AdoptsUnasked,
    /// A change of a backend set is taken for the whole set
    DeltaIsFull,
    /// A backend set that is unknown is taken for an empty one
    UnknownSetIsEmpty,
    /// Other members rewrite the listeners, too
    MemberChangeTouchesListeners,
    /// Another port makes the load balancer anew
    PortChangeRecreates,
    /// What cannot change in place is made anew without being asked to
    RecreatesUnasked,
    /// An owner of another name gets another load balancer, and the old one stays
    RenameForgets,
    /// A load balancer that broke stays PENDING
    ErrorStaysPending,
    /// The vendor's 409 while it works is final
    ConflictIsFinal,
    /// Load balancers that are not finished are not listed
    ListHidesUnfinished,
    /// Hashes of another version are rewritten
    HashVersionRewrites,
    /// Dry runs write
    DryRunWrites,
    /// Source ranges are ignored
    SourceRangesIgnored,
    /// Names that are wished for are taken, and passed over
    NamesIgnored,
    /// Routes that are there already are told as APPLIED
    UnchangedAsApplied,
    /// Laying routes removes those that nobody owns in the same cluster's network
    RemovesForeignRoutes,
    /// Deletions of routes do not ask whose they are
    DeletesUnownedRoutes,
    /// A foreign route in the way is taken over
    TakesOverRoutes,
    /// One route that fails fails the batch
    BadRouteFailsTheBatch,
    /// Routes of a request beyond the hundredth are told as APPLIED, and not laid
    LosesLateRoutes,
    /// Vendor calls know no limit, and nobody is told
    Overspends,
    /// Changes of load balancers wait until all that shall be made is made, however urgent they are
    CreatesGoFirst,
    /// The vendor's Retry-After is not read
    IgnoresRetryAfter,
    /// A throttled look-up is repeated one by one
    FansOutThrottledBatch,
    /// 429 counts as any other failure, and nobody reads what the vendor says is left of its limit
    ThrottleUnnoticed,
    /// Answers cost nothing
    CostIsZero,
    /// Answers cost one call at most
    CostTooLow,
    /// Deadlines of callers are not read
    IgnoresDeadlines,
    /// A create whose answer is lost is sent again, without a client token
    RetriesCreates,
    /// What was just made is taken to show in listings at once
    TrustsStaleReads,
    /// What failed while the vendor was away is given up for good
    GivesUpInOutages,
    /// A client that hangs up cuts what is being made for it
    DisconnectCuts,
    /// Callers need not prove who they are
    AdmitsEverybody,
    /// Callers need a token, and any one will do for everything
    IgnoresRoles,
    /// SIGTERM ends the process at once
    DiesOnSigterm,
    /// A configuration file with faults ends the process
    BadConfigStops,
    /// The vendor's token is read at the start only
    TokenReadOnce,
    /// The serving certificate is read at the start only
    CertificateReadOnce,
    /// Connections never end of old age
    EternalConnections,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

impl Fault {
    /// What is wrong, in one sentence.
    #[must_use]
    pub fn sentence(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// All of them with their sentences, one a line.
    #[must_use]
    pub fn table() -> String {
        let lines = Self::value_variants().iter();
        lines.map(|fault| format!("{:<33}{}\n", fault.to_string(), fault.sentence())).collect()
    }
}
