//! The bounds that clients and operators meet, each with its unit last in the name, and the relations between them.

/// Longest request line in bytes, without its line end. Default of `server.max_line_bytes`.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Longest body of `POST /rpc`. Default of `server.max_body_bytes`.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// Longest answer. Lists end earlier and carry `next`.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Longest answer that tells of a whole deployment, of which there are no pages: what clients read as one line, and nodes send
/// each other, with room for what stands around it. As many wishes as there may be come to a third or two of it, unless much is said
/// of each. What would be longer is refused before anything is changed.
pub const WHOLE_ANSWER_BYTES_MAX: usize = 63 << 20;
/// What a reservation takes of it but for its texts, by an upper estimate: names of members, numbers, times, addresses and ids.
pub const ANSWERED_RESERVATION_BYTES: usize = 1_000;
/// Members of one JSON-RPC batch.
pub const RPC_BATCH_MEMBERS_MAX: usize = 1_000;
/// Requests of one connection that are read and not answered; beyond it the server stops reading.
pub const IN_FLIGHT_REQUESTS_MAX: usize = 1_024;
/// The same while other connections ask, too, but for those that wait for capacity: so many of one keep no processor busy that
/// the others wait for (`server::fairness`).
pub const IN_FLIGHT_BESIDE_OTHERS_MAX: usize = 64;
/// Bytes of requests in flight of a connection, beyond which nothing more is read.
pub const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;
/// Requests of a connection under way at once whose answers may be long.
pub const LONG_REQUESTS_MAX: usize = 8;
/// Reservations in the answer to an `ip.acquire`, whole ones, beyond which it may be long. Each has up to 25 kB, if its labels
/// are as many and as long as they may be.
pub const SHORT_ANSWER_RESERVATIONS_MAX: usize = 4;
/// Bytes of answers to the members of a JSON-RPC batch, beyond which its others that may be long are refused.
pub const BATCH_ANSWER_BYTES_MAX: usize = 16 << 20;
/// Bytes of answers to all batches of a connection that are not answered whole, beyond which what may be long is
/// refused.
pub const BATCHES_ANSWER_BYTES_MAX: usize = 4 * BATCH_ANSWER_BYTES_MAX;
/// Requests of one network that wait for a decision; beyond it: `overloaded`.
pub const NETWORK_QUEUE_REQUESTS_MAX: usize = 8_192;
/// Longest `wait_seconds`: a day.
pub const WAIT_SECONDS_MAX: u64 = 86_400;
/// Requests of one connection that wait for capacity; beyond it: `overloaded`. The rest of what it may have in flight is
/// for what ends the waiting.
pub const CONNECTION_WAITING_REQUESTS_MAX: usize = IN_FLIGHT_REQUESTS_MAX / 2;
/// Requests that wait for capacity of one network; beyond it: `overloaded`.
pub const NETWORK_WAITING_REQUESTS_MAX: usize = 2_048;
/// Requests that wait for capacity of any network; beyond it: `overloaded`.
pub const WAITING_REQUESTS_MAX: usize = 32_768;
/// A client that says nothing for so long is asked by the kernel whether it is still there (TCP keepalive), and again each time:
/// one that died while it waited must not be given what somebody else waits for.
pub const CLIENT_PROBE_MS: u64 = 15_000;
/// Open connections over TCP, and as many over HTTP. Default of `server.max_connections`.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Which part of the files that the process may have open at once are for connections over HTTP at most: one in so many.
/// The others are for the store, other nodes and TCP, which no client of HTTP is to take down.
pub const HTTP_CONNECTIONS_ONE_IN: u64 = 2;
/// Connections over HTTP beyond those, each for one request of whoever watches the server (`/metrics`, `/healthz`, `/readyz`):
/// one that has many clients is not to be taken for a dead one.
pub const HTTP_PROBES_MAX: usize = 16;
/// Bytes of the head of an HTTP request. A cursor may stand in its first line and in a header.
pub const HTTP_HEAD_BYTES_MAX: usize = 192 << 10;
/// Bodies of `POST /rpc` that are worked on at once, those left out that only wait for capacity; beyond it 503.
pub const HTTP_BODIES_MAX: usize = 256;
/// How many bodies of the longest kind all that are read or worked on may make up together; beyond it 503.
pub const HTTP_BODIES_LONGEST_MAX: usize = 4;
/// But so many bytes they may have together however short the longest is.
pub const HTTP_BODIES_BYTES_MIN: usize = 16 << 20;
/// Bytes of answers to bodies that are not taken; beyond it what has a long answer is refused.
pub const HTTP_ANSWERS_BYTES_MAX: usize = 128 << 20;
/// Bytes of what was rendered for `/metrics` and is not taken: some of those of 10 000 networks. Beyond it 503.
pub const HTTP_SCRAPES_BYTES_MAX: usize = 192 << 20;
/// Streams of events over HTTP; beyond it 503.
pub const HTTP_STREAMS_MAX: usize = 256;

/// Changes in one batch of one shard.
pub const BATCH_CHANGES_MAX: usize = 1_000;
/// Changes after which a network hands what it has so far to the committer: a group takes fair shares of these.
pub const UNIT_CHANGES_MAX: usize = 256;
/// Bytes of one group of batches, by an upper estimate. Only an act that is longer by itself goes beyond it, alone.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Bytes after which a network hands what it has so far to the committer.
pub const UNIT_BYTES_MAX: usize = BATCH_BYTES_MAX / 4;
/// Bytes of what must become durable together: a segment of the log holds it. Only the move of a subnet can come near, with
/// some 600 000 reservations of usual length; beyond it is refused.
pub const ACT_BYTES_MAX: usize = 48 << 20;
/// Bytes of one commit of what can be asked for in parts as well, so that nobody else waits for it long: an `ip.acquire` that is
/// `exact`, the plan of a deployment and its end. Some 50 000 reservations that are let go.
pub const PARTED_BYTES_MAX: usize = 8 << 20;
/// What each change counts for there at least: to decide it and to carry it out takes as long however short its texts are.
pub const PARTED_CHANGE_BYTES: usize = 160;
/// Bytes of the move of a subnet over Redis, which answers nobody else meanwhile: some 100 000 reservations, half a
/// second, and into a network with blocks some two tenths of a second more, of however many lengths those are. With several times
/// as many no answer would come in time, and leases would not be renewed.
pub const REDIS_MOVE_BYTES_MAX: usize = 8 << 20;
/// Expired leases and ended cooldowns that one command handles.
pub const EXPIRE_STEPS_MAX: usize = 256;
/// Records that a list looks at before it lets others have a turn.
pub const LIST_SLICE_RECORDS_MAX: usize = 1_000;
/// Changes of a network that are kept while it is listed; more, and the list that began first begins again.
pub const LIST_CHANGES_KEPT_MAX: usize = 100_000;
/// Records of one page of a list.
pub const LIST_PAGE_RECORDS_MAX: usize = 10_000;
/// Records of one page of a list where the request does not say.
pub const LIST_PAGE_RECORDS_DEFAULT: usize = 1_000;
/// Scopes of one `scope.list` where the request does not say: whoever knows of no pages gets all that fit into an answer, of which
/// more than these do not.
pub const SCOPES_PAGE_DEFAULT: usize = ANSWER_BYTES_MAX / 64;
/// Reservations that one `owner.release` or `scope.release` lets go.
pub const RELEASE_RECORDS_MAX: usize = 10_000;
/// Freed ranges that a network with policy `oldest` remembers beyond their cooldown: so many in its pools, and so many of
/// each family where no pool is any more.
pub const OLDEST_REMEMBERED_MAX: usize = 65_536;
/// Pools that a subnet remembers after they changed, so that reservations made in them still match.
pub const PAST_POOLS_MAX: usize = 256;

/// Characters of a name.
pub const NAME_CHARACTERS_MAX: usize = 128;
/// Bytes of an owner, scope, slot, claimant or owner_uid.
pub const IDENTITY_BYTES_MAX: usize = 256;
/// Bytes of a note or description.
pub const NOTE_BYTES_MAX: usize = 1_024;
/// Bytes of `reason`.
pub const REASON_BYTES_MAX: usize = 256;
/// Entries of labels or tags.
pub const LABEL_ENTRIES_MAX: usize = 32;
/// Entries of a patch of them: all that there are go, and as many come.
pub const LABEL_PATCH_ENTRIES_MAX: usize = 2 * LABEL_ENTRIES_MAX;
/// Bytes of a label's key.
pub const LABEL_KEY_BYTES_MAX: usize = 128;
/// Bytes of a label's value.
pub const LABEL_VALUE_BYTES_MAX: usize = 256;
/// DNS servers, and search domains, of a subnet.
pub const DNS_ENTRIES_MAX: usize = 8;
/// Zones of a subnet.
pub const ZONES_MAX: usize = 64;
/// Subnets of a network.
pub const SUBNETS_MAX: usize = 4_096;
/// Pools of a network.
pub const POOLS_MAX: usize = 16_384;
/// Reserved ranges of a network.
pub const RESERVED_RANGES_MAX: usize = 16_384;
/// Members of `ips` of one `ip.acquire`.
pub const ACQUIRE_IPS_MAX: usize = 256;
/// Instances of one deployment's request.
pub const INSTANCES_MAX: usize = 10_000;
/// Instances of one plan that are committed or reverted by themselves: those that it lists, and as many that it does not list any
/// more. Each is remembered in the deployment's record.
pub const SETTLED_INSTANCES_MAX: usize = 2 * INSTANCES_MAX;
/// How often a list, or what was dealt of it, is looked at in one network to deal addresses to one deployment: some tenths of a
/// second, for which nothing else of the network is done.
pub const DEAL_LOOKS_MAX: u64 = 1 << 24;
/// How long a node owns a shard without renewing it: after that another one may take it.
pub const NODE_LEASE_MS: u64 = 5_000;
/// How often it is renewed.
pub const NODE_LEASE_RENEWED_EVERY_MS: u64 = 1_000;
/// A node that could not renew for so long serves nothing more, so that it stops before another one begins.
pub const NODE_LEASE_LAPSES_MS: u64 = 4_000;
/// How long a node that is to own the register may take to get ready, while the owner goes on.
pub const HANDOVER_PREPARE_MS: u64 = 120_000;
/// How long the others may take to hear that the register goes from one node to the next.
pub const HANDOVER_TOLD_MS: u64 = 1_000;
/// How long the owner may take to answer what it was asked until then; else it keeps the register.
pub const HANDOVER_QUIET_MS: u64 = 5_000;
/// How long requests are held while the register goes from one node to the next. This is what bounds a drain for clients;
/// [`HANDOVER_PREPARE_MS`] before it bounds nothing that they feel, and is as long as a large register takes to load.
pub const HANDOVER_HOLD_MS: u64 = 10_000;
/// A node that has had no way to the owner for so long says so to the others: a link that broke is up again by then.
pub const OWNER_APART_MS: u64 = 5_000;
/// An owner gives way after most others have said so for so long.
pub const OWNER_LEFT_MS: u64 = 3_000;
/// After a start or an outage every lease lasts at least so long, or its whole length if that is shorter.
pub const LEASE_GRACE_SECONDS: u64 = 30;
/// Conflicts that a network keeps for an operator; more wait at the node that has the late claims.
pub const CONFLICTS_MAX: usize = 256;
/// Late claims of one network that are brought at once.
pub const LATE_CLAIMS_MAX: usize = 256;
/// How often the time of a shard with running leases or cooldowns is written down at least, if nothing else is: a crash lengthens
/// them by no more.
pub const TIME_MARK_SECONDS: u64 = 60;
/// And how often at most, for those that end soon.
pub const TIME_MARK_SECONDS_MIN: u64 = 10;
/// Longest lease, cooldown or probation: a hundred years.
pub const DURATION_SECONDS_MAX: u64 = 100 * 366 * 86_400;
/// Wishes of one deployment: its instances, each as often as it has networks.
pub const DEPLOYMENT_WISHES_MAX: usize = 20_000;
/// Addresses of a pool that `network.map` draws as text.
pub const MAP_TEXT_ADDRESSES_MAX: u128 = 65_536;
/// Entries and cells that a slice of a `network.map` in cells looks at before it lets others have a turn: some milliseconds.
pub const MAP_SLICE_RECORDS_MAX: usize = 10_000;
/// Cells of `network.map` with `format: "cells"`.
pub const MAP_CELLS_MAX: usize = 65_536;
/// Longest `deadline_ms`: a day.
pub const DEADLINE_MS_MAX: u64 = 86_400_000;
/// Bytes of a host name or search domain.
pub const HOSTNAME_BYTES_MAX: usize = 253;
/// Bytes of one part of a host name, between its dots.
pub const HOSTNAME_PART_BYTES_MAX: usize = 63;
/// Bytes of a zone, of `l2.mode` and of `l2.link`.
pub const ZONE_BYTES_MAX: usize = 128;
/// Bytes of a cursor or of `after`, which clients hand back as they got them. A cursor over all networks has some thirty
/// for each shard.
pub const CURSOR_BYTES_MAX: usize = 64 << 10;
/// Claimants that one `claimant.mark` or `claimant.sweep` names.
pub const SWEEP_CLAIMANTS_MAX: usize = 10_000;
/// Claimants that are marked for all sweeps together; beyond it: `overloaded`.
pub const SWEEP_MARKED_MAX: usize = 1 << 20;
/// Claimants that are marked for the sweeps of one scope.
pub const SWEEP_MARKED_OF_SCOPE_MAX: usize = SWEEP_MARKED_MAX / 4;
/// Names under which claimants are marked.
pub const SWEEP_NAMES_MAX: usize = 1_024;
/// How long marks last after the last one under their name.
pub const SWEEP_MARKS_LAST_MS: u64 = 3_600_000;
/// Claimants that were missed by one sweep, over all networks; who finds no place is missed anew by a later one.
pub const SWEEP_MISSES_MAX: usize = 1 << 20;
/// Addresses in each list of an answer of `claimant.sweep`, and so what it lets go at most of each sort.
pub const SWEEP_LISTED_MAX: usize = 1_000;
/// Largest generation or version: what every JSON reader keeps exactly.
pub const JSON_NUMBER_MAX: u64 = (1 << 53) - 1;

/// Events that are told at once.
pub const EVENTS_PAGE_MAX: usize = 256;
/// Bytes of history that are read at once for somebody who watches, or taken out of memory.
pub const EVENTS_PAGE_BYTES: usize = 1 << 20;
/// Events of one page of `events.history` where the request does not say.
pub const HISTORY_PAGE_DEFAULT: usize = 100;
/// Addresses that `events.history` with `at` tells of.
pub const HISTORY_AT_MAX: usize = 100_000;
/// How far `at` of `events.history` may lie ahead of the server's clock: a client's may be ahead of it.
pub const HISTORY_AHEAD_MS_MAX: u64 = 60_000;
/// Questions of what was held at a time that are answered at once; each may take [`HISTORY_AT_MAX`] events of memory.
pub const HISTORY_WALKS_MAX: usize = 4;
/// How long an owner lets somebody wait for events before it says that there are none.
pub const EVENTS_WAIT_MS_MAX: u64 = 10_000;
/// How often who watches is told where they stand, if nothing else is.
pub const BOOKMARK_EVERY_MS: u64 = 10_000;
/// Subscriptions of one connection.
pub const WATCHES_MAX: usize = 64;
/// Pages of events that all subscriptions of a connection have in memory while they are made into lines.
pub const WATCH_PAGES_MAX: usize = 2;
/// Bytes of lines, of all subscriptions of a connection, that its client has not taken; a single one may be longer.
pub const WATCH_BYTES_MAX: usize = 2 << 20;
/// Bytes of changes that somebody who watches may be behind; the owner keeps these in memory, and the group before them. Default of
/// `server.max_behind_bytes`.
pub const BEHIND_BYTES_MAX: usize = 32 << 20;

/// Bytes of one frame between nodes. A page of ten thousand plain records has some three million.
pub const PEER_FRAME_BYTES_MAX: usize = 64 << 20;
/// Bytes of one frame between nodes before each has proved to know the cluster's secret.
pub const PEER_HANDSHAKE_FRAME_BYTES_MAX: usize = 2 << 10;
/// Nodes that are connected to one node.
pub const PEERS_MAX: usize = 64;
/// Connections to a node that have not introduced themselves; beyond it the oldest gives way.
pub const PEER_STRANGERS_MAX: usize = 64;
/// Connections to a node from one address that have not introduced themselves; beyond it the oldest gives way.
pub const PEER_STRANGERS_PER_ADDRESS_MAX: usize = 16;
/// Requests that one node has under way at another; beyond it: `overloaded`.
pub const PEER_IN_FLIGHT_REQUESTS_MAX: usize = 32_768;
/// Subscriptions of clients of one node that wait for events at another; beyond it: `overloaded`, and they are asked for again.
pub const PEER_WATCHES_MAX: usize = 32_768;
/// Bytes of requests that wait for the socket to another node; beyond it: `overloaded`.
pub const PEER_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of answers that are written together; more is encoded only when these are gone.
pub const PEER_WRITE_BYTES: usize = 1 << 20;
/// Everything of a handshake.
pub const PEER_HANDSHAKE_MS: u64 = 5_000;
/// An idle connection between nodes is asked for a sign of life so often; and who reads something long gives one unasked.
pub const PEER_PING_MS: u64 = 1_000;
/// A node that says nothing for so long while something is asked of it is taken for gone.
pub const PEER_SILENCE_MS: u64 = 3_000;
/// A node that stops waits so long for the goodbye of another one that has nothing under way.
pub const PEER_GOODBYE_MS: u64 = 1_000;
/// A node that asks nothing for so long, not even for a sign of life, is let go.
pub const PEER_IDLE_MS: u64 = 10_000;
/// Shortest and longest wait before a connection to another node is tried again.
pub const PEER_RETRY_MS: (u64, u64) = (50, 2_000);
/// Bytes of the cluster's secret, blanks around it not counted.
pub const CLUSTER_SECRET_BYTES_MIN: usize = 16;
/// Bytes of the file with the cluster's secret.
pub const CLUSTER_SECRET_BYTES_MAX: usize = 4 << 10;
/// How deep a refusal names members of members.
pub const REFUSAL_DEPTH_MAX: usize = 8;

/// Shards of a register at most.
pub const SHARDS_MAX: u16 = 1_024;
/// Shards of a register that is begun without a number of its own. One node owns all of them, so each more only costs: a commit
/// is parted into so many batches (with 64 networks over Redis 300 000 requests a second with 16, 325 000 with 4, 345 000 with 1). Not
/// 1 all the same: whoever loads one network loads its shard, a busy network pushes the history of the others of its shard
/// out, and the memory of a standby peaks with the largest image of a shard.
pub const SHARDS_OF_NEW: u16 = 4;

/// The latest format of records that this program reads and writes (`store::codec::Format`).
pub const RECORD_FORMAT_NEWEST: u8 = if cfg!(feature = "next-format") { 2 } else { 1 };

const _: () = assert!(NODE_LEASE_LAPSES_MS < NODE_LEASE_MS && NODE_LEASE_RENEWED_EVERY_MS * 2 < NODE_LEASE_LAPSES_MS);
// Who holds requests sees that the owner keeps the register, or that its lease ran out.
const _: () = assert!(HANDOVER_QUIET_MS + NODE_LEASE_MS <= HANDOVER_HOLD_MS);
const _: () = assert!(SHARDS_OF_NEW > 0 && SHARDS_OF_NEW <= SHARDS_MAX);
const _: () = assert!(UNIT_CHANGES_MAX <= BATCH_CHANGES_MAX);
const _: () = assert!(BATCH_BYTES_MAX <= PARTED_BYTES_MAX && PARTED_BYTES_MAX <= ACT_BYTES_MAX);
const _: () = assert!(EXPIRE_STEPS_MAX <= BATCH_CHANGES_MAX);
const _: () = assert!(ACQUIRE_IPS_MAX * 2 <= BATCH_CHANGES_MAX);
const _: () = assert!(LINE_BYTES_MAX <= BODY_BYTES_MAX);
const _: () = assert!(2 * CURSOR_BYTES_MAX < HTTP_HEAD_BYTES_MAX);
const _: () = assert!(LIST_PAGE_RECORDS_DEFAULT <= LIST_PAGE_RECORDS_MAX);
const _: () = assert!(PEER_STRANGERS_PER_ADDRESS_MAX < PEER_STRANGERS_MAX);
const _: () = assert!(PEER_FRAME_BYTES_MAX >= 2 * ANSWER_BYTES_MAX);
const _: () = assert!(WHOLE_ANSWER_BYTES_MAX < PEER_FRAME_BYTES_MAX && WHOLE_ANSWER_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(PEER_QUEUE_BYTES_MAX >= PEER_FRAME_BYTES_MAX);
const _: () = assert!(PEER_IN_FLIGHT_REQUESTS_MAX >= NETWORK_QUEUE_REQUESTS_MAX);
const _: () = assert!(2 * PEER_PING_MS < PEER_SILENCE_MS && PEER_SILENCE_MS < PEER_IDLE_MS);
