//! allod: a register of who holds which address.
//!
//! A server that hands out IP addresses and blocks. Every answer is durable before it leaves, and no address is handed out
//! twice. This page is the map: layers, the life of one request, and what always holds. What the server does for its users
//! is in README.md and `config/recipes.md`.
//!
//! # Layers
//!
//! ```text
//!  main ─▶ cli ─▶ client ─▶ wire          the command line is a client like any other
//!            └─▶ serve                    `allod serve`, `allod try`: the only place that constructs a server
//!
//!  serve ─▶ http ─▶ server ─▶ actors ─▶ core
//!                     │  │      └─▶ store (the trait) ─▶ core
//!                     │  └─▶ peer ─▶ actors, core        to and from other nodes
//!                     └─▶ wire (of the core: addresses and names)
//! ```
//!
//! | module | does | never sees |
//! | --- | --- | --- |
//! | [`core`] | the rules: decides and applies changes of one network; names and overlaps | tasks, clocks, randomness, I/O, logs, JSON |
//! | [`wire`] | the protocol as types: methods, params, results, errors, the OpenRPC document | actors, stores, rules |
//! | [`store`] | the contract of a store; [`store::embedded`] keeps files, [`store::redis`] a Redis server's hashes, [`store::memory`] nothing | the protocol, actors |
//! | [`actors`] | the owners of state: networks, committer, directory, coordinator | the protocol, a particular store |
//! | [`server`] | connections and sessions: bytes to messages and back | stores |
//! | [`peer`] | node to node: forwards requests to their owner, and serves those of other nodes | the protocol, stores |
//! | [`http`] | `/rpc`, `/metrics`, `/healthz`, `/readyz`, `/openrpc.json` | actors |
//! | [`serve`], [`config`] | starting and stopping; the settings; checks of a machine, and how large it must be | |
//! | [`client`], [`cli`] | calls over TCP that survive lost connections; the command line and its output | actors, the rules |
//!
//! [`limits`], [`metrics`], [`seldom`] and [`telemetry`] are leaves that every module may use, except that the core uses
//! only `limits`; tests have `fuzz`. The allowed directions are a table in `tests/it/tidy/directions.rs`, which a test
//! checks.
//!
//! # Life of an `ip.allocate`
//!
//! ```text
//!  client ─▶ 1 connection ─▶ 2 session ─▶ 3 network actor ─▶ 5 committer ─▶ 6 store
//!    ▲                                        │   ▲                            │
//!    │                                        ▼   │                            │
//!    │                                      4 core::network                    │
//!    └────── 8 connection ◀── 7 session ◀──────────────────── when durable ────┘
//! ```
//!
//! 1. [`server::connection`] reads what the socket has and cuts it into lines.
//! 2. [`server::session`] finds the requests in them ([`wire::envelope`]) and reads their params: nearly all in one pass
//!    (`wire::plain`), the others, and all wrong ones, by [`wire::methods`], which knows the place of an error. It decides
//!    which message goes to which actor ([`server::dispatch`], in the types of [`core::command`]), looks up the network's
//!    actor in a snapshot ([`actors::routes`]), and sends all requests for one network as one message, as many as find a
//!    place in its queue ([`actors::sending`]).
//! 3. [`actors::network`] is the only task that touches this network. For each request it lets the core decide, and applies
//!    the decision; nothing is awaited in between.
//! 4. [`core::network`] decides: it checks the request, picks an address ([`core::space`]), and writes the changes down as
//!    steps ([`core::state::Step`]). Or it refuses ([`core::refusal`]).
//! 5. [`actors::committer`] gathers steps and answers of all networks into a group. While one group is being made durable,
//!    the next one fills; there is no timer.
//! 6. [`store::Store::commit`] makes the group durable. The embedded store writes one record and flushes it once; with Redis
//!    a script compares the group with what is there and writes it.
//! 7. The committer releases the answers in order, and [`server::session`] writes them as JSON ([`server::render`]; refusals
//!    and faults: [`server::faults`]).
//! 8. [`server::connection`] writes all answers that are ready with one call.
//!
//! With `log.level = "info,allod=trace"` each of these steps logs a line, in this order.
//!
//! Requests about several networks, about deployments, or about names and space go through [`actors::coordinator`] and
//! [`actors::directory`] instead of step 3, and are committed by the same committer.
//!
//! # What always holds
//!
//! Each promise, where it is kept, and the tests that show it (a test checks that these exist and run).
//!
//! - **I-1** *One holder.* In a realm an address belongs to one network, and in a network to at most one reservation,
//!   blocks included.
//!   - Kept by [`core::catalog`] (space of networks), [`core::network`] (holdings) and [`actors::recorded`] (what lies
//!     in no subnet).
//!   - Shown by
//!     - `the_search_agrees_with_comparing_everything`
//!     - `a_recorded_address_belongs_to_one_network_of_its_realm`
//!     - `any_sequence_of_commands_keeps_every_promise`
//!     - `what_was_answered_is_true_after_each_of_twenty_kills`, by clients of a process that is killed
//! - **I-2** *One address for a repeat.* `(network, scope, owner, slot)` names at most one current reservation, so that
//!   a repeated request yields no second address.
//!   - Kept by [`core::network`].
//!   - Shown by
//!     - `any_sequence_of_commands_keeps_every_promise`
//!     - `a_retry_returns_the_same_address_and_says_so`
//! - **I-3** *What nobody may hold.* Network, broadcast, anycast and gateway addresses are never held, whatever flags a
//!   request has.
//!   - Kept by [`core::network`].
//!   - Shown by
//!     - `every_usable_address_is_given_once_and_no_other`
//!     - `a_held_address_cannot_become_the_gateway`
//!     - `a_held_address_never_becomes_a_network_or_broadcast_address`
//! - **I-4** *Counts that add up.* Every address is in exactly one state, and the counts add up to the size.
//!   - Kept by [`core::space`] and [`core::network`].
//!   - Shown by
//!     - `small_pool_answers_like_one_bool_per_number`
//!     - `any_sequence_of_commands_keeps_every_promise`
//!     - `the_server_answers_generated_sequences_as_the_model_does`
//! - **I-5** *One writer.* Only its actor changes a network, and only by decide and apply, so that loading what is stored
//!   yields the same network.
//!   - Kept by [`actors::network`].
//!   - Shown by
//!     - `modules_depend_in_one_direction`
//!     - `loading_the_entries_of_a_network_gives_the_same_network`
//!     - `a_panic_is_one_internal_error_and_the_network_goes_on_from_the_store`
//! - **I-6** *A batch once.* A batch takes effect once, under the token of the shard's present owner, or not at all.
//!   - Kept by [`store`] (its contract) and [`actors::committer`] (outcomes).
//!   - Shown by
//!     - `a_batch_sent_again_is_applied_once`
//!     - `a_take_over_fences_the_owner_before`
//!     - `other_content_under_a_used_seq_is_refused`
//!     - `whichever_commit_fails_answers_and_store_agree`
//! - **I-7** *The reply barrier.* No answer leaves before everything that it shows is durable, including refusals and reads;
//!   nothing that was decided on discarded memory ever leaves.
//!   - Stated in [`actors::network`], kept by [`actors::committer`].
//!   - Shown by
//!     - `no_answer_shows_what_is_not_durable`
//!     - `past_the_deadline_what_was_not_applied_is_refused_and_memory_goes_back`
//!     - `whichever_disk_operation_fails_nothing_acknowledged_is_lost`
//! - **I-8** *Order.* Requests of one connection for one network take effect in the order in which they were sent. Requests
//!   that take space of a realm take effect after earlier ones that give some back, and requests that name a MAC after
//!   earlier ones that release it in another network.
//!   - Kept by [`server::session`] and [`actors::network`] (what waits there).
//!   - Shown by
//!     - `requests_for_one_network_take_effect_in_the_order_sent`
//!     - `requests_of_one_connection_for_one_network_stay_in_order_over_a_reload`
//!     - `a_request_waits_for_the_creation_of_the_network_that_it_names`
//!     - `a_method_over_several_networks_stands_between_what_is_before_and_behind`
//!     - `space_that_a_request_gives_back_is_there_for_the_one_behind_it_whichever_network_asks`
//!     - `space_of_a_closed_network_is_there_for_what_stands_behind_the_end_of_its_last_reservation`
//!     - `a_mac_that_is_given_back_is_there_for_the_request_behind_it_whichever_network_asks`
//! - **I-9** *One owner of the register.* If several nodes share a register, only answers of its owner leave. Each answer is
//!   proved, after its request arrived, by a commit or a fence check under the owner's token, whatever leases and clocks
//!   say.
//!   - Kept by [`actors::committer`] (proofs) and [`serve`] (tenures).
//!   - Shown by
//!     - `a_node_that_was_stopped_past_its_lease_and_woken_neither_grants_nor_repeats_a_grant`
//!     - `an_owner_that_was_replaced_repeats_no_answer_from_its_memory`
//!     - `a_node_is_drained_under_load_and_no_client_is_put_off`
//!     - `whichever_node_is_killed_the_others_go_on_and_no_address_has_two_holders`
//! - **I-10** *Deployments all or nothing.* A deployment changes in all of its networks or in none, together with the record
//!   of its plan. Only its latest plan can be ended, and no plan number is given twice, so a late commit or revert of a run
//!   that died never harms the next run. A client that repeats an unanswered request continues from there.
//!   - Kept by [`actors::coordinator`] (one commit) and [`core::network`] (what a plan did is written in the
//!     reservations).
//!   - Shown by
//!     - `an_apply_is_all_or_nothing_over_all_its_networks`
//!     - `an_apply_that_the_store_did_not_take_leaves_nothing_and_can_be_repeated`
//!     - `a_plan_number_rises_also_over_a_deletion_so_that_a_dead_run_never_harms_the_next`
//!     - `between_apply_and_commit_a_kill_leaves_all_of_a_deployment_or_nothing`
//!     - `plans_over_several_networks_end_as_wished_or_leave_what_was`
//!     - `deployments_come_and_go_as_a_list_of_what_they_hold_says`
//! - **I-11** *Waiting in turn.* Requests that wait for capacity are served in turn, or told why not. Nothing is granted to
//!   a client that hung up, or to an owner of whom everything was released meanwhile; and no later request takes what fits
//!   an earlier one.
//!   - Kept by [`actors::network`] (its queue).
//!   - Shown by
//!     - `a_freed_address_goes_to_who_waits_for_longest`
//!     - `who_comes_behind_a_release_does_not_overtake_who_waits`
//!     - `whose_time_is_over_does_not_overtake_who_waits_for_longer`
//!     - `a_client_that_hangs_up_waits_no_more_and_one_that_ends_its_input_does`
//!     - `what_waits_for_an_owner_of_whom_all_is_let_go_ends_and_the_next_one_is_served`
//!     - `who_waits_waits_on_at_the_next_owner_for_the_time_that_is_left`
//!     - `who_waits_for_a_network_that_crashes_waits_on_when_it_is_loaded_again`
//!     - `who_waits_by_name_waits_on_for_the_same_network_when_it_is_renamed`
//!     - `a_network_that_is_closed_by_force_ends_every_wait_for_it_and_no_other`
//! - **I-12** *Events once and in order.* A watcher gets each durable event once and in order, from any cursor on; if that
//!   is impossible, it is told so, and events are never skipped silently.
//!   - Kept by `actors::events`.
//!   - Shown by
//!     - `a_watch_goes_on_from_any_cursor_and_tells_each_event_once`
//!     - `a_cursor_stands_where_its_answer_saw_the_network_also_within_one_commit`
//!     - `with_the_index_and_without_it_the_same_is_told`
//! - **I-13** *No claimant by mistake.* A claimant loses what it uses only if two sweeps missed it that were at least the
//!   grace apart, and no sweep releases more than its share.
//!   - Kept by [`core::network`] and [`actors::coordinator`].
//!   - Shown by
//!     - `a_claimant_is_let_go_when_two_sweeps_missed_it_at_least_the_grace_apart`
//!     - `a_sweep_that_would_let_go_of_too_much_does_nothing`
//!     - `a_claimant_of_a_rebuilt_machine_is_not_swept_because_of_a_stale_binding`
//! - **I-14** *What a failover cut off.* Changes that a node acknowledged and that a failover of Redis cut off are given
//!   back or wait for an operator, across every restart. Nobody loses an address to them, and a network with two claims to
//!   one address grants nothing and keeps its space meanwhile.
//!   - Kept by [`store::late`], [`serve`] (which brings it) and [`core::network`].
//!   - Shown by
//!     - `where_somebody_else_came_in_between_nothing_is_played_and_what_is_missing_is_put_aside`
//!     - `what_cannot_be_given_back_is_a_conflict_that_puts_nobody_out_and_is_noted_once`
//!     - `what_was_given_to_another_meanwhile_waits_for_an_operator_over_every_restart`
//!
//! Why this takes what it does when processes pause and stores fail over: [`consistency`], with its rules R-1 to R-26.
//!
//! Queues are bounded ([`actors`] has the table) and waits are limited; the bounds that clients and operators meet have
//! names in [`limits`].

pub mod actors;
pub mod cli;
pub mod client;
pub mod config;
pub mod consistency;
pub mod core;
#[cfg(test)]
mod fuzz;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod peer;
pub mod seldom;
pub mod serve;
pub mod server;
pub mod store;
pub mod telemetry;
pub mod wire;
