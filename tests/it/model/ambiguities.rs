//! What the contract leaves open, and what the model assumes. Decisions that begin with the name of a switch can be reversed
//! in [`super::Assumptions`]; the generator avoids what is marked *not generated*.

/// One sentence per decision, by area.
pub const AMBIGUITIES: &[&str] = &[
    // Which error
    "Precedence: every refusal that applies is looked for, the first by the list of kinds is answered; a name \
     that is taken ranks just before `overlap`, behind `out_of_range`.",
    "A claim outside every subnet of a `static_only` network is `wrong_kind`, since that precedes `out_of_range` \
     and an address outside every subnet is outside the static pools.",
    "`data.field` is only checked to be there; which field is named where several are wrong is open.",
    "`already_in_use`: `held_by` is compared where one reservation alone is in the way, `address` where that and what \
     is asked are single addresses; of a MAC that is taken only the kind is compared.",
    "`if_version` is checked before `if_absent` answers `created: false`.",
    "switch `figures`: size, held, obsolete, reserved, cooling, declined of `not_enough_capacity` are summed over \
     the dynamic pools that the request admits (draining ones included, as reserved), not over the network, as \
     they are before the request; `next_free_at` and `pools` are not compared.",
    // Allocation
    "A repeat on a permanent reservation with `ttl_seconds` leaves it permanent (the later end is never).",
    "switch `uid_binds_on_repeat`: a repeat with `owner_uid` stores it where none was stored.",
    "A repeat changes lease, claimant, labels and a missing uid only: note, hostname, mac, transient and \
     release_with_claimant stay, and so does the kind, unless the address is named now that was chosen: it is static then.",
    "`previous_claimant` is answered only where another claimant was bound.",
    "Another `owner_uid` (`already_in_use`) is found before `must_create` (`already_exists`); `must_create` with \
     `replace` is `already_exists` where the slot holds anything.",
    "`pool` that no longer exists is `not_found`, unless the slot's reservation lay in it when granted: then it \
     matches.",
    "A `pool` range names a pool only if it is exactly the pool's range, however written.",
    "Automatic allocation with `pool` naming static pools only is `not_enough_capacity`, as is any allocation in \
     a `dynamic` network (it has no pools); subnets in a `dynamic` network are `wrong_kind`.",
    "`prefix_length` is compared with the subnets of the family asked (all, if none is asked; of IPv6, if it is \
     longer than 32); wider than all of them is `invalid_argument`, longer than an IPv4 address with IPv4 asked \
     too; in a network without such subnets it is `not_enough_capacity`.",
    "`prefix_length` of 32 or 128 asks for one address and is the same as none.",
    "A single address `for` an owner needs no pool around it (but must match `pool` if asked), is passed over \
     while it is unusable, held, declined, draining, or cooling after another slot; it comes before the cooling \
     address of the slot itself.",
    "`for` without `slot` means every slot of that owner, without `scope` the scope `default`.",
    "The cooling address that a slot let go is given back only if it lies in a dynamic pool that the request \
     admits and has the length asked; of several the one let go last; not where both uids are known and differ. \
     To other slots of the same owner it is cooling as to anyone.",
    "Equal times of release under `oldest`, `cooldown_yields` and 'let go last' leave the choice open.",
    "`oldest`: never-used means never held in this network since it has this policy, or since it was created; what \
     cools when the policy becomes `oldest` was used; lowest first. Blocks: the lowest \
     block none of whose addresses was ever held, else the lowest free one.",
    "`cooldown_yields`: one address: the one released longest ago over all admitted pools. Blocks: the lowest \
     block of the first admitted pool that holds nothing held, reserved or declined.",
    "`random`, block or not: any free one of the first pool that has any.",
    "Cooling is reckoned with the `cooldown_seconds` of now, not of the release; it ends at `now >= released + \
     cooldown`. What has ended does not begin again when the cooldown becomes longer.",
    "switch `cools_from_lease_end`: an expired address cools from the time of the first request after the end of \
     its lease, not from the end itself.",
    "switch `removal_forgets`: what cooled, was declined or was ever used is remembered by the network when a \
     subnet is removed and added again; with `subnet.move` what is held, cools \
     or is declined goes along, while what rested is remembered by the network that it left.",
    // Claim and acquire
    "switch `declined_needs_force`: claiming a declined address is `reserved` unless `force`; cooling addresses \
     may be claimed by anyone.",
    "A claimed block must lie inside one pool (`out_of_range`) and be aligned (`invalid_argument`).",
    "Held by the same owner in another slot counts as held by another: `already_in_use`.",
    "`replace` with a claim that overlaps the slot's own reservation succeeds if nothing else is in the way.",
    "Limits are counted as after the request: what `replace` or `exact` lets go does not count, nor does an `optional` item for \
     which there is no room. With room and beyond a limit it is `quota_exceeded`, but left out where all items of its network \
     that are not optional are held already, and one at least: a blind repeat is answered as the first time.",
    "Acquire: the default slot's position counts all items of that network, those with a slot too; a default slot \
     that meets a named one is 'twice'. `address` with `pool` in one item is `invalid_argument`.",
    "Acquire: all items are tried, the first error by rank (then by index) is answered. What is replaced or \
     released by `exact` is not available to other items of the same request.",
    "`exact` with an `owner_uid` lets go of nothing that is held with another one: `already_in_use`.",
    "`exact`: networks named are those of the items, and the one at the top, of which nothing may be wished; what is \
     replaced stands in `replaced`, not in `released`; the slot of an `optional` item left out is named, so what it holds stays.",
    "One `mac` for several addresses of an acquire; `brief` in an acquire over several networks: not generated.",
    // Holdings
    "Release: `scope` without `owner` is ignored or checked, not generated; `force` does not set aside a named \
     owner (`not_owner`); with `address` and without `scope` the scope `default` is checked.",
    "Renew, bind, unbind, update: address and owner together are checked against each other (`not_owner`), not \
     generated. `ttl_seconds` of 0: not generated.",
    "Renew sets the end to now + ttl, also where that is earlier.",
    "Unbind needs `claimant`; bound to another is `already_in_use`. Without network it looks in realm `default`. \
     `release_with_claimant` that is not bound is answered as done and stays.",
    "Transfer: `to.slot` defaults to `0`; where the transfer is already done, an earlier generation is that of the \
     holding that was handed over, and a later one is `conflict`; `exchange` with nothing in the receiver's slot is \
     `not_found`; repeated, it also shows what came back, while the giver holds that: what was granted directly \
     behind the address, at the same instant; claimant, labels, lease, mac and kind stay, `owner_uid` goes with the \
     former owner, `created_at` is new; draining does not hinder; limits bind the receiver unless it exchanges.",
    "Decline: a slot left out is not checked; a closed network is `in_use`; `again` gives the same slot another \
     of the same family and length out of any admitted dynamic pool, with uid, claimant, labels, notes and the \
     end of the lease; a repeat with `again` answers what the slot holds. After the probation the address is free \
     at once, free since then.",
    // Reads
    "`ip.get`: an address that is in a draining subnet or pool and not held is `reserved`; outside the subnets of \
     the network named, or of the realm, `unknown`. `network` with `realm` is `invalid_argument`.",
    "State, first that applies: held, unusable, reserved, declined, cooling, free.",
    "`ip.list`: an unknown network, or subnet or pool of a named network, is `not_found`; unknown realms, scopes \
     and owners are empty lists; `range` admits what overlaps it; `pool` and `subnet` go by the first address; \
     closed networks are listed under their old name.",
    "`after` is a position only: another `limit` or other filters with it are allowed, and \
     `count_only` counts what lies behind it; a token that was never \
     given is `invalid_argument`.",
    "`network.usage` of a subnet counts its whole range; `dynamic` and `static` count held addresses by the \
     reservation's kind; `used_ratio` is not compared. `network.map` shows unusable and draining addresses as \
     taken; `cells` is not compared.",
    "`network.list` without `deleted` leaves closed networks out; with `deleted: true`, and the form of \
     `realm.list`: not generated, or compared as a list of names.",
    // Configuration
    "The version starts where the server says and rises by exactly one a call that changes something; switch \
     `no_change_raises_version` for calls that change nothing. Closing and restoring raise it by one each.",
    "`reserved.add` that overlaps ranges for the same owner, or for nobody as it is, becomes one range with them, with \
     the note of the newer where given, else of the lowest; what is for others keeps its addresses, except that an \
     owner takes what he names of what is for nobody, and exactly the same range named again is for whom it says; parts \
     that then say the same are one range; ranges that only touch stay apart; a range not wholly inside one subnet is \
     `out_of_range`.",
    "`reserved.remove` answers the ranges of the subnets that it touched; with `for`, only what is for \
     exactly that owner goes; a note given to it is ignored.",
    "`subnet.add if_absent` means the subnet of the same name, else of the same cidr; `pool.add if_absent` that \
     of the same range; subnets within `network.create if_absent` are compared by cidr, in every member given, \
     and must be as many; pools in a subnet are compared by place, in every member given.",
    "Resizing a subnet so that a held address would become its network, broadcast or anycast address is `in_use`; \
     a cidr that is not nested in the old one is a resize like any other; the gateway must fit the new cidr.",
    "`pool.modify` to a range outside the pool's own subnet is `out_of_range`.",
    "`subnet.move` to the same network changes nothing, and is refused if the network is closed or has moved on; the \
     target's limits, kind `vip` and \
     `static_only` are not checked; MACs are, where the realm is another; `if_version` is that of the source.",
    "`network.delete`: `protected` is `in_use` with `force` and `purge` too; `purge` needs no `force`; its \
     `holding` is not compared. A closed network is forgotten with its last reservation. `network.restore` of an \
     open network answers it unchanged.",
    "`null` in `set` clears description, tags, l2, limits, gateway, name, dns and zones; for flags, policy and \
     numbers it is `invalid_argument` (not generated).",
];
