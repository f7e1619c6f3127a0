//! The bounds that clients and operators meet, and the relations between them. Each name ends with its unit.

/// Longest request line in bytes, without its line end. Default of `server.max_line_bytes`.
pub const LINE_BYTES_MAX: usize = 1 << 20;
/// Longest body of `POST /rpc`. Default of `server.max_body_bytes`.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// Longest answer. Lists end earlier and carry `next`.
pub const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Longest answer with a whole deployment. Such an answer has no pages: clients read it as one line, and nodes send it to each
/// other as one frame. The largest deployment ([`DEPLOYMENT_WISHES_MAX`]) takes a third to two thirds of this, unless its
/// reservations have long texts. A request whose answer would be longer is refused before anything is changed.
pub const WHOLE_ANSWER_BYTES_MAX: usize = 63 << 20;
/// Upper estimate of the bytes that a reservation takes in an answer, without its texts: names of members, numbers, times,
/// addresses and ids.
pub const ANSWERED_RESERVATION_BYTES: usize = 1_000;
/// Members of one JSON-RPC batch.
pub const RPC_BATCH_MEMBERS_MAX: usize = 1_000;
/// Requests of one connection that are read and not yet answered; beyond it the server stops reading.
pub const IN_FLIGHT_REQUESTS_MAX: usize = 1_024;
/// The same while other connections ask, too, not counting requests that wait for capacity. With so few requests under way, one
/// connection does not keep the processors busy that the others wait for (`server::fairness`).
pub const IN_FLIGHT_BESIDE_OTHERS_MAX: usize = 64;
/// Bytes of the requests in flight on a connection; beyond it the server stops reading.
pub const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;
/// Requests with possibly long answers that a connection may have under way at once.
pub const LONG_REQUESTS_MAX: usize = 8;
/// Whole reservations in the answer to an `ip.acquire`; with more the answer counts as long. A reservation takes up to 25 kB, if
/// it has as many labels as are allowed, each as long as is allowed.
pub const SHORT_ANSWER_RESERVATIONS_MAX: usize = 4;
/// Bytes of answers to one JSON-RPC batch; beyond it further members that may have long answers, or that change nothing, are
/// refused.
pub const BATCH_ANSWER_BYTES_MAX: usize = 16 << 20;
/// Bytes of answers to all unfinished batches of a connection; beyond it further members that may have long answers are
/// refused.
pub const BATCHES_ANSWER_BYTES_MAX: usize = 4 * BATCH_ANSWER_BYTES_MAX;
/// Requests of one network that wait for a decision; beyond it: `overloaded`.
pub const NETWORK_QUEUE_REQUESTS_MAX: usize = 8_192;
/// Longest `wait_seconds`: a day.
pub const WAIT_SECONDS_MAX: u64 = 86_400;
/// Requests of one connection that wait for capacity; beyond it: `overloaded`. The rest of what a connection may have in flight
/// is left for requests that end the waiting, such as releases.
pub const CONNECTION_WAITING_REQUESTS_MAX: usize = IN_FLIGHT_REQUESTS_MAX / 2;
/// Requests that wait for capacity of one network; beyond it: `overloaded`.
pub const NETWORK_WAITING_REQUESTS_MAX: usize = 2_048;
/// Requests that wait for capacity, of all networks together; beyond it: `overloaded`.
pub const WAITING_REQUESTS_MAX: usize = 32_768;
/// After this long without data from a client the kernel probes whether it is still there (TCP keepalive), and repeats the probe
/// at the same interval: a client that died while it waited must not be given what another client waits for.
pub const CLIENT_PROBE_MS: u64 = 15_000;
/// Open TCP connections, and as many HTTP connections. Default of `server.max_connections`.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Connections beyond those that may be open, which are kept for a moment so that their clients hear why they are turned away; beyond
/// it they are closed at once. As many again over HTTP.
pub const TURNED_AWAY_MAX: usize = 64;
/// HTTP connections may use at most one in this many of the files that the process may have open. The rest is kept for the
/// store, other nodes and TCP, which HTTP clients must not be able to take down.
pub const HTTP_CONNECTIONS_ONE_IN: u64 = 2;
/// Further HTTP connections, each for one request of a monitor (`/metrics`, `/healthz`, `/readyz`): a server with many clients
/// must not look dead to those who watch it.
pub const HTTP_PROBES_MAX: usize = 16;
/// Bytes of the head of an HTTP request. Its first line and a header may each have a cursor.
pub const HTTP_HEAD_BYTES_MAX: usize = 192 << 10;
/// Bodies of `POST /rpc` that are worked on at once, not counting those that only wait for capacity; beyond it 503.
pub const HTTP_BODIES_MAX: usize = 256;
/// Bytes of all bodies being read or worked on, as a multiple of the longest body allowed; beyond it 503.
pub const HTTP_BODIES_LONGEST_MAX: usize = 4;
/// Bytes that all bodies may have together in any case, however short the longest body allowed is.
pub const HTTP_BODIES_BYTES_MIN: usize = 16 << 20;
/// Bytes of answers to bodies that clients have not read yet; beyond it requests with long answers are refused.
pub const HTTP_ANSWERS_BYTES_MAX: usize = 128 << 20;
/// Bytes of rendered `/metrics` that clients have not read yet, enough for several scrapes of 10 000 networks; beyond it 503.
pub const HTTP_SCRAPES_BYTES_MAX: usize = 192 << 20;
/// Streams of events over HTTP; beyond it 503.
pub const HTTP_STREAMS_MAX: usize = 256;

/// Changes in one batch of one shard.
pub const BATCH_CHANGES_MAX: usize = 1_000;
/// Changes after which a network hands what it has so far to the committer, which takes fair shares of these units into a group.
pub const UNIT_CHANGES_MAX: usize = 256;
/// Bytes of one group of batches, by an upper estimate. Only a single act that is longer by itself exceeds it, and then it is a
/// group of its own.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// Bytes after which a network hands what it has so far to the committer.
pub const UNIT_BYTES_MAX: usize = BATCH_BYTES_MAX / 4;
/// Bytes of one act, which must become durable as a whole and so must fit into a segment of the log. Only the move of a subnet
/// comes near it, with some 600 000 reservations of usual length, and a list of thousands of subnets with all tags, zones and
/// notes that they may have; larger ones are refused.
pub const ACT_BYTES_MAX: usize = 48 << 20;
/// Bytes of one commit of a request that could also be made in parts: an `ip.acquire` with `exact`, the plan of a deployment,
/// and the end of a plan. The bound keeps other clients from waiting for it long. Some 50 000 released reservations.
pub const PARTED_BYTES_MAX: usize = 8 << 20;
/// The least that each change counts towards [`PARTED_BYTES_MAX`]: deciding and applying it takes time however short its
/// texts are.
pub const PARTED_CHANGE_BYTES: usize = 160;
/// Bytes of the move of a subnet over Redis, which answers nobody else while it applies the move: some 100 000 reservations
/// take half a second, or 0.7 s into a network with blocks, however many lengths these have. With several times as many,
/// answers would come too late and leases would not be renewed.
pub const REDIS_MOVE_BYTES_MAX: usize = 8 << 20;
/// Expired leases and ended cooldowns that one command handles.
pub const EXPIRE_STEPS_MAX: usize = 256;
/// Records that a list looks at before it yields to other requests.
pub const LIST_SLICE_RECORDS_MAX: usize = 1_000;
/// Changes of a network that are kept while it is being listed; with more, the list that began first starts again.
pub const LIST_CHANGES_KEPT_MAX: usize = 100_000;
/// Records of one page of a list.
pub const LIST_PAGE_RECORDS_MAX: usize = 10_000;
/// Records of one page of a list if the request does not say.
pub const LIST_PAGE_RECORDS_DEFAULT: usize = 1_000;
/// Scopes of one `scope.list` if the request does not say. A client that knows nothing of pages gets all that fit into an
/// answer, and more than these do not fit.
pub const SCOPES_PAGE_DEFAULT: usize = ANSWER_BYTES_MAX / 64;
/// Reservations that one `owner.release` or `scope.release` releases.
pub const RELEASE_RECORDS_MAX: usize = 10_000;
/// Freed ranges that a network with policy `oldest` remembers after their cooldown: this many in its pools, and this many of
/// each family outside its present pools.
pub const OLDEST_REMEMBERED_MAX: usize = 65_536;
/// Former pools that a subnet remembers, so that a repeat about a reservation made in one still matches.
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
/// Entries of a patch of labels or tags: enough to remove all that there are and to add as many.
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
/// Instances of one plan that can be committed or reverted one by one: those that it lists, and as many that it no longer lists.
/// The deployment's record has each of them.
pub const SETTLED_INSTANCES_MAX: usize = 2 * INSTANCES_MAX;
/// Steps of the search that deals listed addresses of one network to one deployment: some tenths of a second, in which the
/// network does nothing else.
pub const DEAL_LOOKS_MAX: u64 = 1 << 24;
/// How long a node owns a shard without renewing its lease; afterwards another node may take the shard.
pub const NODE_LEASE_MS: u64 = 5_000;
/// How often the lease is renewed.
pub const NODE_LEASE_RENEWED_EVERY_MS: u64 = 1_000;
/// A node that could not renew its lease for this long stops serving, so that it has stopped before another one begins.
pub const NODE_LEASE_LAPSES_MS: u64 = 4_000;
/// How long the next owner may take to load the register, while the present owner goes on serving.
pub const HANDOVER_PREPARE_MS: u64 = 120_000;
/// How long the other nodes may take to hear that the register is handed over.
pub const HANDOVER_TOLD_MS: u64 = 1_000;
/// How long the owner may take to answer the requests that it has begun; if it takes longer, it keeps the register.
pub const HANDOVER_QUIET_MS: u64 = 5_000;
/// How long requests are held while the register goes from one node to the next: all that clients feel of a drain. The time for
/// loading before it ([`HANDOVER_PREPARE_MS`]) holds nobody up, and is long enough for a large register.
pub const HANDOVER_HOLD_MS: u64 = 10_000;
/// How long `allod cluster drain` waits unless it is told otherwise: all of a handover to the first node that is asked to
/// take over, and what it takes to reach the nodes.
pub const DRAIN_WAIT_SECONDS: u64 = (HANDOVER_PREPARE_MS + HANDOVER_HOLD_MS) / 1_000 + 20;
/// A node that cannot reach the owner for this long tells the others: a link that merely broke is up again by then.
pub const OWNER_APART_MS: u64 = 5_000;
/// The owner gives way after most other nodes have said for this long that they cannot reach it.
pub const OWNER_LEFT_MS: u64 = 3_000;
/// After a start or an outage every lease lasts at least this long, or its whole length if that is shorter.
pub const LEASE_GRACE_SECONDS: u64 = 30;
/// Places of a network in which memory and store differ that are logged: they are lost once the server is restarted. The unit
/// (`LogRateLimitBurst=`) lets ten such networks into the journal at once.
pub const DIFFERENCES_TOLD_MAX: usize = 10_000;
/// Conflicts that a network keeps for an operator; further ones wait at the node that has the late claims.
pub const CONFLICTS_MAX: usize = 256;
/// Late claims that a node brings to one network at once.
pub const LATE_CLAIMS_MAX: usize = 256;
/// How often the time of a shard with running leases or cooldowns is written down at least, if nothing else is written. A crash
/// lengthens them by no more than this.
pub const TIME_MARK_SECONDS: u64 = 60;
/// How often that time is written down at most, for leases and cooldowns that end soon.
pub const TIME_MARK_SECONDS_MIN: u64 = 10;
/// Longest lease, cooldown or probation: a hundred years.
pub const DURATION_SECONDS_MAX: u64 = 100 * 366 * 86_400;
/// Wishes of one deployment: its instances, each counted once for every network that it has.
pub const DEPLOYMENT_WISHES_MAX: usize = 20_000;
/// Addresses of a pool that `network.map` draws as text.
pub const MAP_TEXT_ADDRESSES_MAX: u128 = 65_536;
/// Entries and cells that `network.map` in cells looks at before it yields to other requests: some milliseconds.
pub const MAP_SLICE_RECORDS_MAX: usize = 10_000;
/// Cells of `network.map` with `format: "cells"`.
pub const MAP_CELLS_MAX: usize = 65_536;
/// Cells of a pool in `network.map` if the request does not say how large they are.
pub const MAP_CELLS_FITTING_MAX: u128 = 4_096;
/// Longest `deadline_ms`: a day.
pub const DEADLINE_MS_MAX: u64 = 86_400_000;
/// Bytes of a host name or search domain.
pub const HOSTNAME_BYTES_MAX: usize = 253;
/// Bytes of one part of a host name, between its dots.
pub const HOSTNAME_PART_BYTES_MAX: usize = 63;
/// Bytes of a zone, of `l2.mode` and of `l2.link`.
pub const ZONE_BYTES_MAX: usize = 128;
/// Bytes of a cursor or of `after`, which clients send back as they got them. A cursor over all networks takes some thirty bytes
/// for each shard.
pub const CURSOR_BYTES_MAX: usize = 64 << 10;
/// Claimants that one `claimant.mark` or `claimant.sweep` names.
pub const SWEEP_CLAIMANTS_MAX: usize = 10_000;
/// Marked claimants of all sweeps together; beyond it: `overloaded`.
pub const SWEEP_MARKED_MAX: usize = 1 << 20;
/// Marked claimants of the sweeps of one scope.
pub const SWEEP_MARKED_OF_SCOPE_MAX: usize = SWEEP_MARKED_MAX / 4;
/// Names under which claimants are marked.
pub const SWEEP_NAMES_MAX: usize = 1_024;
/// How long marks last after the latest one under the same name.
pub const SWEEP_MARKS_LAST_MS: u64 = 3_600_000;
/// Claimants remembered as missed by one sweep, over all networks. One that finds no place counts as missed for the first time by
/// a later sweep.
pub const SWEEP_MISSES_MAX: usize = 1 << 20;
/// Addresses in each list of an answer to `claimant.sweep`, and so the most of each sort that one sweep unbinds or releases.
pub const SWEEP_LISTED_MAX: usize = 1_000;
/// Largest generation or version: the largest number that every JSON reader keeps exactly.
pub const JSON_NUMBER_MAX: u64 = (1 << 53) - 1;

/// Events that are sent to a watcher at once.
pub const EVENTS_PAGE_MAX: usize = 256;
/// Bytes of history that are read from the store, or taken out of memory, for a watcher at once.
pub const EVENTS_PAGE_BYTES: usize = 1 << 20;
/// Events of one page of `events.history` if the request does not say.
pub const HISTORY_PAGE_DEFAULT: usize = 100;
/// Addresses in an answer to `events.history` with `at`.
pub const HISTORY_AT_MAX: usize = 100_000;
/// How far `at` of `events.history` may lie ahead of the server's clock: the client's clock may be ahead.
pub const HISTORY_AHEAD_MS_MAX: u64 = 60_000;
/// Requests of `events.history` with `at` that are worked on at once; each may keep [`HISTORY_AT_MAX`] events in memory.
pub const HISTORY_WALKS_MAX: usize = 4;
/// How long the owner keeps a request for new events open before it answers that there are none.
pub const EVENTS_WAIT_MS_MAX: u64 = 10_000;
/// How often a watcher is sent its present cursor, if there is nothing else to send.
pub const BOOKMARK_EVERY_MS: u64 = 10_000;
/// Subscriptions of one connection.
pub const WATCHES_MAX: usize = 64;
/// Pages of events that all subscriptions of a connection may have in memory while they are rendered.
pub const WATCH_PAGES_MAX: usize = 2;
/// Bytes of rendered events, of all subscriptions of a connection, that the client has not read yet; a single one may be longer.
pub const WATCH_BYTES_MAX: usize = 2 << 20;
/// Bytes of changes that a watcher may lag behind. The owner keeps that many in memory, and the group before them. Default of
/// `server.max_behind_bytes`.
pub const BEHIND_BYTES_MAX: usize = 32 << 20;

/// Bytes of one frame between nodes. A page of ten thousand plain records takes some three million.
pub const PEER_FRAME_BYTES_MAX: usize = 64 << 20;
/// Bytes of one frame between nodes before both have proved that they know the cluster's secret.
pub const PEER_HANDSHAKE_FRAME_BYTES_MAX: usize = 2 << 10;
/// Nodes that are connected to one node.
pub const PEERS_MAX: usize = 64;
/// Connections to a node whose handshake is not finished; beyond it the oldest one is closed.
pub const PEER_STRANGERS_MAX: usize = 64;
/// Connections to a node from one address whose handshake is not finished; beyond it the oldest one is closed.
pub const PEER_STRANGERS_PER_ADDRESS_MAX: usize = 16;
/// Requests that one node has under way at another; beyond it: `overloaded`.
pub const PEER_IN_FLIGHT_REQUESTS_MAX: usize = 32_768;
/// Subscriptions of one node's clients that wait for events at another node; beyond it: `overloaded`, and the node asks again.
pub const PEER_WATCHES_MAX: usize = 32_768;
/// Bytes of requests that wait for the socket to another node; beyond it: `overloaded`.
pub const PEER_QUEUE_BYTES_MAX: usize = 64 << 20;
/// Bytes of answers that are written together; further answers are encoded once these are written.
pub const PEER_WRITE_BYTES: usize = 1 << 20;
/// How long a whole handshake may take.
pub const PEER_HANDSHAKE_MS: u64 = 5_000;
/// How often a node asks for a sign of life on an idle connection. A node that reads a long frame gives one unasked.
pub const PEER_PING_MS: u64 = 1_000;
/// A node that is silent for this long while it owes an answer counts as gone.
pub const PEER_SILENCE_MS: u64 = 3_000;
/// How long a stopping node waits for the goodbye of a node that has nothing under way.
pub const PEER_GOODBYE_MS: u64 = 1_000;
/// A connection over which a node asks nothing for this long, not even for a sign of life, is closed.
pub const PEER_IDLE_MS: u64 = 10_000;
/// Shortest and longest wait before a connection to another node is tried again.
pub const PEER_RETRY_MS: (u64, u64) = (50, 2_000);
/// Bytes of the cluster's secret at least, not counting white space around it.
pub const CLUSTER_SECRET_BYTES_MIN: usize = 16;
/// Bytes of the file with the cluster's secret at most.
pub const CLUSTER_SECRET_BYTES_MAX: usize = 4 << 10;
/// How many levels deep a refusal names nested members.
pub const REFUSAL_DEPTH_MAX: usize = 8;

/// Shards of a register.
pub const SHARDS_MAX: u16 = 1_024;
/// Shards of a new register if nothing else is asked for. One node owns all of them, so every further shard only costs: a
/// commit is divided into that many batches (64 networks over Redis: 300 000 requests a second with 16 shards, 325 000 with
/// 4, 345 000 with 1). It is not 1 because loading one network loads its whole shard, because a busy network pushes the
/// history of the others in its shard out, and because a standby's memory peaks with the largest image of a shard.
pub const SHARDS_OF_NEW: u16 = 4;

/// The latest format of records that this program reads and writes (`store::codec::Format`).
pub const RECORD_FORMAT_NEWEST: u8 = if cfg!(feature = "next-format") { 2 } else { 1 };

const _: () = assert!(NODE_LEASE_LAPSES_MS < NODE_LEASE_MS && NODE_LEASE_RENEWED_EVERY_MS * 2 < NODE_LEASE_LAPSES_MS);
// A node that holds requests learns in that time that the owner keeps the register, or that its lease has run out.
const _: () = assert!(HANDOVER_QUIET_MS + NODE_LEASE_MS <= HANDOVER_HOLD_MS);
const _: () = assert!(SHARDS_OF_NEW > 0 && SHARDS_OF_NEW <= SHARDS_MAX);
const _: () = assert!(UNIT_CHANGES_MAX <= BATCH_CHANGES_MAX);
// Beside a list of subnets in one unit there is what the unit has so far (`Shared::fits_one_commit`).
const _: () = assert!(UNIT_BYTES_MAX <= ACT_BYTES_MAX / 16);
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
