//! Decisions of the model that a server may make differently without breaking the contract, with one switch each. The
//! reasons are in [`super::AMBIGUITIES`].

/// Where the capacity figures of a refusal are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figures {
    /// The dynamic pools that the request could draw from.
    EligiblePools,
    /// The whole network, as `network.usage` counts it.
    WholeNetwork,
    /// Not compared.
    Ignored,
}

#[derive(Debug, Clone, Copy)]
pub struct Assumptions {
    /// An expired address cools from the end of its lease; otherwise from the first request after it.
    pub cools_from_lease_end: bool,
    /// Removing a subnet forgets which of its addresses were cooling, declined or used.
    pub removal_forgets: bool,
    /// A change that changes nothing raises the version, too.
    pub no_change_raises_version: bool,
    /// A repeat with an `owner_uid` stores it where none was stored.
    pub uid_binds_on_repeat: bool,
    /// A declined address can be claimed only with `force`; otherwise no claim is refused for it.
    pub declined_needs_force: bool,
    pub figures: Figures,
}

impl Default for Assumptions {
    fn default() -> Self {
        Self {
            cools_from_lease_end: false,
            removal_forgets: false,
            no_change_raises_version: false,
            uid_binds_on_repeat: true,
            declined_needs_force: true,
            figures: Figures::EligiblePools,
        }
    }
}
