//! Why nothing is handed out twice, whatever fails: the rules, and for each the failure that needs it. Documentation only.
//!
//! The head of the crate says what always holds (I-1 to I-14). This page says what that takes when processes pause, machines
//! lose power, and Redis fails over to a replica that lacks the last writes. Comments name a rule by its number, as R-9. The
//! stories of failures are in italics. Each rule names tests of its story, which a test checks. The negative controls, whose
//! names begin with *without*, leave a rule out of a model and show that something breaks there: that the rule is needed, not
//! that it is kept, so none stands alone. If less is done than the rule once asked for, *Otherwise* says so, and why.
//!
//! **A batch has a name: token, number, digest.** *A commit times out. The owner reads the head, concludes that the
//! batch was not applied, and gives its number to another batch. Then the first batch, which had been waiting in a socket,
//! runs, and the second is taken for done.* So a number has one content for ever: the owner sends the same bytes until the
//! outcome is definite or it has taken the shard anew, and only then reads anything. [`store`](crate::store), `commit.lua`;
//! shown by `other_content_under_a_used_seq_is_refused`,
//! `an_answer_that_does_not_come_is_unknown_and_the_same_bytes_settle_it`,
//! `a_batch_that_arrives_late_changes_nothing_once_the_shard_was_taken_anew`,
//! `without_the_digest_a_number_that_was_used_twice_is_taken_for_one_batch`.
//!
//! **The fence is a random token.** *After a failover to a state before a take-over, two nodes have the same epoch.* So
//! every script compares 128 random bits, which are drawn at each take-over; the epoch only orders. A node whose lease
//! lapsed never continues under its old token. The lease counts from when its last renewal was sent, on a clock that runs
//! while the machine sleeps, and whatever the store says of it later counts for nothing. Shown by
//! `the_token_fences_where_the_epoch_went_back`, `without_the_token_an_address_has_two_holders`,
//! `a_lease_that_lapsed_while_its_renewal_was_under_way_is_over_whatever_the_store_answers`,
//! `a_node_that_slept_through_its_lease_goes_on_by_itself_and_under_another_token`.
//!
//! **Answers without a write are fenced, too.** *A paused owner wakes and repeats a grant from its memory. Meanwhile
//! the address went to somebody else, and as nothing was written, nothing refused the answer.* So an answer leaves only when
//! everything that it saw is durable and its owner was proved to own the register after the request had arrived: by a
//! commit, or by one check for all answers that wait. [`actors::committer`](crate::actors::committer); shown by
//! `an_owner_that_was_replaced_repeats_no_answer_from_its_memory`,
//! `an_owner_that_was_replaced_cannot_prove_that_it_is_one`, `without_the_check_of_answers_something_stale_is_told`.
//! *Otherwise:* no read relies on the lease of its owner. The lease is kept at one Redis and proves nothing to its replicas:
//! if owner and Redis are cut off together, that Redis keeps the lease while a replica is promoted and another node takes
//! over there, so a read might be older than any lease. While too few replicas answer, reads are refused like everything
//! else, and the refusal says so; as a proof writes nothing, a missing proof puts nothing in doubt.
//!
//! **A change names what it expects to find.** *Memory is wrong in some way that nobody thought of.* So each record is
//! compared by generation before anything of a batch is written. A mismatch reloads the network: nothing of the batch is
//! done, its answers say so, and the mismatch is counted and logged. Shown by
//! `a_mismatch_names_what_is_there_and_writes_nothing`, `an_expectation_that_fails_is_never_passed_on`,
//! `without_token_and_expectations_an_address_has_two_holders`,
//! `a_change_that_finds_something_else_is_not_done_and_its_network_serves_again_from_the_store`,
//! `what_travels_with_a_mismatch_is_refused_and_nothing_acknowledged_is_lost`. *Otherwise:* the changes of other networks in
//! the batch, and whatever waited behind the batch, are refused as not done, too, and those networks are loaded again. These
//! changes are not sent in another batch. Memory was wrong in a way that nobody thought of, so whatever was decided beside
//! it is not believed either; and the same number with other bytes would go over the connection on which the refused batch
//! may still arrive a second time. The cost is a reload of the networks concerned. The history does not mention it: nothing
//! happened.
//!
//! **Blocks are compared as blocks.** *A /26 is one record at .0; a put of .17 finds its own field empty.* So for a put
//! the script looks for a block that covers it, by each length that is in use, and for a block also for records inside it.
//! If many addresses come at once, each hash is read once, and for blocks that begin before the hash each length is asked
//! for once: otherwise the move of a large subnet would keep Redis from everybody else for longer than a lease. Shown by
//! `for_many_addresses_that_come_at_once_redis_is_not_asked_by_each_length_of_blocks`,
//! `a_put_inside_a_stored_block_is_refused`, `a_block_over_anything_that_is_held_is_refused`,
//! `where_there_are_no_blocks_nothing_is_read_because_of_them`,
//! `beside_a_network_with_blocks_another_one_of_its_shard_is_not_searched_for_any`. *Redis is started in a Czech locale. Lua
//! compares strings by it, so that a letter comes before a digit, and an address inside the block is taken for one beside
//! it.* So addresses are compared by bytes; shown by
//! `a_put_inside_a_block_and_a_block_over_what_is_held_are_refused_whatever_the_locale_of_redis`,
//! `ipv6_addresses_are_found_where_they_lie_whatever_the_locale_of_redis`, and for records that were misplaced before by
//! `records_that_lie_astray_are_brought_where_they_are_looked_for_when_their_shard_is_loaded`. *Otherwise:* the head counts
//! the blocks of a whole shard, so if one network has blocks, the other networks of its shard are asked whether they have
//! any.
//!
//! **Memory never runs on after doubt.** A batch that was *not applied* is sent again, in order, for two seconds, and a
//! large move for up to six. After that, or if the outcome is unknown, everything that was decided on that memory is given
//! up, including refusals and reads, and the memory is loaded anew. Nothing of it ever leaves. *The last address was
//! granted, another request begins to wait, and the grant is given up: the address is free, but no request comes that would
//! show it.* So a network whose memory is given up is told, and loads itself again whether it is asked anything or not. *A
//! disk is full, and the room that it keeps for releases is used up: a client that repeats a release for which there is no
//! room has everybody's networks loaded again each time.* So room is claimed before anything is decided. Of a group that was
//! decided before that, only those changes are given up for which there is no room, together with what their networks
//! decided after them (`committer::cut`). [`actors::committer`](crate::actors::committer); shown by
//! `whichever_commit_fails_answers_and_store_agree`,
//! `who_found_no_room_beside_a_grant_that_came_to_nothing_is_served_with_nothing_else_asked`,
//! `a_release_that_finds_no_room_on_a_full_disk_is_refused_before_memory_has_it_and_smaller_ones_go_on`,
//! `what_lets_go_beside_a_grant_that_a_full_store_refuses_is_done_and_costs_nobody_a_reload`,
//! `a_large_subnet_may_take_longer_to_move_than_the_store_has_for_other_changes`.
//!
//! **Confirming is not committing.** *WAIT between commits holds up each of them; on a connection that wrote nothing it
//! confirms nothing.* So there are two connections: one commits, the other writes a mark after everything that is to be
//! confirmed and waits once. If a connection is replaced between the commit and its confirmation, the outcome is *unknown*.
//! Shown by `without_confirmation_something_acknowledged_is_lost`,
//! `the_next_batch_is_committed_while_one_waits_for_its_replica`,
//! `a_connection_that_is_replaced_before_the_confirmation_leaves_the_outcome_unknown`,
//! `while_a_replica_that_is_waited_for_hears_nothing_nothing_is_acknowledged`,
//! `with_a_replica_waited_for_an_owner_that_is_cut_off_with_its_primary_acknowledges_and_shows_nothing`.
//!
//! **k replicas, or the own disk.** *One of two replicas is gone for the night: either nothing is granted until
//! morning, or a second failover loses what was acknowledged meanwhile.* With fewer than k replicas nothing is acknowledged.
//! If an operator allows it (`store.redis_degrade`), changes are acknowledged that the remaining replicas and the disk of
//! the owner have, and every place that shows the register shows that. The disk keeps everything that k replicas are not
//! known to have, including what they had before Redis went back. It gives that up once they have it again, or once it is
//! put aside; then nothing else of the line is given up with it. k has no other default than 0: the replicas that may be
//! promoted are not simply those that are connected, and only an operator knows them. *The register is moved before that is
//! given back: the new place is another register, and nobody reads the file.* So a start with another register is refused,
//! in Redis or in files, as with a late journal; shown by
//! `what_was_acknowledged_in_another_register_and_lies_beside_this_one_is_told_before_anything_is_granted` and
//! `what_was_kept_of_another_register_is_refused_by_name_and_given_up_only_where_somebody_says_so`. Shown by
//! `with_too_few_replicas_nothing_is_acknowledged_until_they_are_there`,
//! `what_a_node_acknowledged_without_its_replica_survives_the_primary_and_the_process`,
//! `what_is_played_again_without_the_replica_is_on_the_disk_as_well`,
//! `what_another_owner_went_on_from_stays_on_the_disk_when_the_rest_is_put_aside`,
//! `the_file_is_not_emptied_before_what_the_owner_of_now_lacks_is_put_aside`.
//!
//! **Healing only on one's own line.** *B acknowledged 100 to 110; the register goes back to 98; C takes over and
//! grants the same addresses; B comes back and sees a later head: to B it looks as if nothing had gone back.* So each head
//! names its token, its number and a digest of everything before it. Batches on an owner's own line are played again, byte
//! for byte. The others become a *late journal*: claims that the present owner grants again if address and slot are free. If
//! they are not, the network has a conflict. Until somebody decides it grants nothing and keeps all its space, or another
//! network would grant an address that is claimed; nor is it deleted, because its claims exist nowhere else. Nobody loses an
//! address, and no claim is dropped. [`store::late`](crate::store::late); shown by
//! `where_somebody_else_came_in_between_nothing_is_played_and_what_is_missing_is_put_aside`,
//! `a_redis_that_goes_back_past_an_owners_own_take_over_is_given_back_that_too`,
//! `a_node_that_lost_the_register_while_it_was_cut_off_leaves_it_to_who_has_it_though_redis_forgot_that`,
//! `a_node_that_stops_when_redis_went_back_gives_back_what_it_acknowledged_first`,
//! `what_an_owner_acknowledged_that_was_cut_off_with_its_primary_comes_back_as_claims_and_conflicts`,
//! `while_two_claim_an_address_its_network_keeps_its_space_and_is_not_deleted`,
//! `a_deleted_network_keeps_its_undecided_claims_and_ends_when_the_last_is_decided`.
//!
//! - *A batch is under way when its owner is cut off. Redis applies it, the next owner continues from it, and then Redis
//!   goes back to before it: the first owner does not know that there is something to give back, and the line of the next
//!   owner begins after it.* So a node that takes a shard also remembers the last batches that it found there; shown by
//!   `a_batch_that_was_under_way_when_its_owner_was_cut_off_is_given_back_by_who_went_on_from_it`,
//!   `a_batch_that_was_under_way_when_its_process_ended_is_given_back_by_the_next_one_of_its_node`,
//!   `what_was_under_way_when_its_node_was_cut_off_is_given_back_by_who_went_on_from_it`.
//! - *Redis is down, and everything is restarted: the processes that knew what it lost are gone.* So a process that is asked
//!   to stop, and cannot know that the register has what it acknowledged, leaves that on its disk, and the next process
//!   treats it as if it had sent it itself; shown by
//!   `a_node_that_ends_while_redis_is_away_gives_back_what_that_lost_when_it_is_started_again` and
//!   `what_a_node_left_when_it_ended_is_claimed_where_another_one_went_on_meanwhile`.
//! - *Redis goes back while the register goes from one owner to the next: the former one only waits for its successor, and
//!   that one goes on without what is missing.* So whoever let go of the register looks for that while it waits; shown by
//!   `what_redis_loses_between_two_owners_is_given_back_by_the_one_that_let_go`.
//! - *A replica was promoted, and the former primary is on its way back: no replica follows, so none seems to lack anything.
//!   The owner is stopped, and the former primary is promoted next.* So if somebody decides which Redis is the primary,
//!   every Redis known to them must follow; otherwise the owner leaves on its disk what it acknowledged; shown by
//!   `a_node_that_is_stopped_while_one_that_may_be_promoted_is_away_leaves_what_it_acknowledged`.
//! - A late claim that was answered by a conflict becomes a claim again if that answer is cut off, too; shown by
//!   `a_conflict_that_was_found_on_a_line_that_is_cut_off_is_claimed_again_until_it_was_decided`.
//! - *A holder renews its lease and is told that it has two hours. The failover loses that, the lease ends by the register,
//!   and the address goes to somebody else.* So a renewal is a claim, too: the lease becomes as long as the holder was told.
//!   If it ended meanwhile, the address is held again, or there is a conflict; shown by
//!   `what_is_held_for_longer_at_the_end_is_claimed_with_until_when_it_was_held_before`,
//!   `who_was_told_that_his_lease_is_longer_has_it_for_so_long_and_never_for_less`,
//!   `a_renewed_lease_that_ended_here_is_held_again_or_a_conflict_until_the_end_that_was_told`,
//!   `whoever_renewed_on_a_line_that_is_cut_off_has_it_for_as_long_as_he_was_told_and_history_tells_of_it`.
//! - *The holder's subnet moved to another network before the renewal, and the move is cut off as well: the network that
//!   acknowledged the renewal has no place for it, and would grant nothing because of a conflict in which nobody is.* So the
//!   renewal is claimed where the holder is, or where that space is by now; shown by
//!   `a_lease_that_was_renewed_behind_a_move_that_is_cut_off_is_longer_where_its_holder_is`.
//! - *After the move an address there is granted to a new holder. The network that has the space now sees the address as
//!   free, and grants it although there is a claim elsewhere.* So a grant is claimed where the space is, too. It is a
//!   conflict of the network that acknowledged it only if no network of the realm has that space. No subnet moves while that
//!   is found out; shown by `a_grant_behind_a_move_that_is_cut_off_is_claimed_where_its_space_is`,
//!   `a_late_claim_whose_subnet_moves_meanwhile_is_given_back_where_the_subnet_is`.
//! - *Before the move the address was granted to another holder, who released it after the move: both claims are for one
//!   place, and the first to come would win.* So what one journal grants and another one ends, because it moved with its
//!   subnet, is no longer claimed, which is known before any claim is brought; shown by
//!   `who_let_go_behind_a_move_that_is_cut_off_is_not_given_back_what_the_next_one_has`.
//! - *A plan granted a slot one address, the next plan another one, and both are cut off. The former is claimed first, and is
//!   current: what the slot uses is a conflict.* So what was obsolete is held again as obsolete; shown by
//!   `what_a_plan_left_for_another_address_is_held_again_as_obsolete_and_the_other_one_is_current`.
//! - A conflict whose claim comes again when nobody is in its way is no longer a conflict; shown by
//!   `a_conflict_whose_late_holder_has_the_address_by_now_is_none`.
//! - *The disk of that node is full, so that nothing can be put aside.* Then nothing is given back before there is room, and
//!   the log and the count of late batches say so; it follows the owner all the same; shown by
//!   `what_cannot_be_put_aside_for_want_of_room_is_counted_and_keeps_nobody_from_following_the_owner`.
//! - *All nodes are stopped, and an older copy of Redis is restored: no process runs that would notice.* So an orderly stop
//!   notes how far changes were acknowledged, and no start continues from before that; shown by
//!   `an_older_copy_that_is_brought_back_while_no_node_runs_is_refused_until_somebody_accepts_it`. Nor is such a copy moved
//!   into the directory that has the later note; shown by
//!   `a_redis_that_went_back_is_not_moved_into_the_directory_that_knows_of_more`.
//! - If a store stopped because Redis went back, that is noted, and the last check of that store leaves the note, even if
//!   everything that Redis lacks is put aside by then; shown by
//!   `the_last_look_of_a_store_that_stopped_leaves_what_forbids_the_next_start`. The note says how far the other shards had
//!   been acknowledged, too, because a copy that has all of one may lack something of another; shown by
//!   `a_copy_that_has_what_a_shard_lacked_when_redis_went_back_is_refused_for_what_another_one_lacks`.
//! - *Otherwise:* releases, claimants, labels, MACs and configuration are reported as cut off and not repeated: nobody can
//!   say whether later decisions were meant instead. Claims in a network that is gone by now, or whose creation was cut off,
//!   too, are given up, and an ERROR names each; so is a renewal in space that no network has any more. And a node plays
//!   again only what it sent itself and still has: the last `store.redis_heal_bytes`, and of the owner before it at most
//!   eight batches for each shard, of which beyond two only as many as are not too long. If Redis went back further,
//!   everything stops, and the register is not written over: what is there may be all that anybody has, if the writer should
//!   fail on the way. A Redis that lost everything has nothing to lose.
//!
//! **An empty store is not a new one.** *FLUSHALL, or a restart without its file: a node finds no head, and everything
//! is free again.* So the first start writes the register's name and a head for each shard. Nodes keep the name in a file,
//! and refuse another register or none. A running owner has everything that was acknowledged in memory, and writes it anew
//! if nothing of a register is left: under fresh tokens, so that nothing that was on its way counts, and closed to everybody
//! until it has been read once more. Each network keeps the way back from its memory to what was durable
//! ([`core::network::WayBack`](crate::core::network::WayBack)), by which decisions that never became durable are left out.
//! [`store::redis`](crate::store::redis); shown by `an_emptied_server_stops_the_store_and_the_next_start`,
//! `a_head_that_is_missing_is_damage`,
//! `a_register_whose_redis_is_emptied_under_load_is_written_anew_and_nothing_acknowledged_is_lost`.
//!
//! - *Redis comes back with the files of another register, whose heads look as if another node had continued from an earlier
//!   state.* So nodes also refuse another register or none while they run; shown by
//!   `a_running_node_grants_nothing_from_another_register_and_ends_naming_both`.
//! - *Another node took over before Redis was emptied, granted addresses, and is gone with what it had; the two nodes never
//!   reached each other.* So an owner writes the register anew only if its lease is in force, or if it has no secret, so
//!   that it shares the register with nobody, and saw no other node. Otherwise another node may have owned the register
//!   since; shown by `nodes_that_share_a_register_grant_nothing_from_a_redis_that_comes_back_empty_after_their_leases`,
//!   `an_owner_that_is_back_writes_nothing_over_what_a_node_granted_that_it_never_saw`.
//! - *Redis is emptied once more meanwhile, or an answer is lost: the unfinished register there would keep it from being
//!   written.* So the owner tries again until the register is whole, and removes what it began itself; shown by
//!   `a_register_whose_redis_is_emptied_again_while_it_is_written_anew_is_written_all_the_same`,
//!   `what_was_begun_anew_and_is_unfinished_is_begun_once_more_by_who_began_it`.
//! - *The owner is told to stop just after Redis was emptied, and lets go of the register before it asked Redis for anything.*
//!   So it asks once more while it owns the register, and writes it before it ends; shown by
//!   `a_node_that_is_told_to_stop_when_redis_was_just_emptied_writes_the_register_anew_before_it_ends`.
//! - *The register is not written anew, the node ends, and its operator restores an older copy: it is on the node's own
//!   line, and nothing says what is missing.* So the node leaves on its disk what it acknowledged, as at any end at which it
//!   does not know what Redis has, and how far that went; shown by
//!   `what_an_owner_acknowledged_whose_redis_was_emptied_is_given_back_to_an_older_copy`,
//!   `what_a_node_acknowledged_that_let_go_before_redis_was_emptied_is_given_back_to_an_older_copy`,
//!   `an_older_copy_is_refused_where_what_was_acknowledged_is_remembered_no_more`.
//! - *Somebody deletes one head: its owner ends, but the other nodes wait for a node that writes the register anew, and none does.*
//!   So a node that finds no head looks at the same instant whether the register's key is there, and ends if it is; shown by
//!   `every_node_of_a_register_that_lost_a_head_ends_with_70_and_names_the_key`.
//! - *Files are moved to Redis, and the first start over Redis names another database: nothing is noted yet.* So what a move
//!   leaves beside the files counts as a note, too; shown by
//!   `a_node_whose_files_were_moved_to_redis_begins_no_register_where_that_one_is_not`.
//! - *Otherwise:* a register is written anew as a whole or not at all, as it lies in one place: a single missing head among
//!   others is damage. And a node with a new directory knows no name: where there is nothing, it begins an empty register.
//!   The log says so (`began a new, empty register`), and says what to check if the node has a secret that others share.
//!
//! **Generations never repeat.** The next generation is above all that are stored, and above the clock's seconds times
//! 2^20: only if both fail could one repeat. [`actors::generations`](crate::actors::generations); shown by
//! `a_network_that_is_made_again_after_the_clock_went_back_repeats_no_generation`,
//! `generations_do_not_repeat_after_a_commit_in_doubt`.
//!
//! **Leases and cooldowns err late only.** *The new owner's clock is ten minutes ahead, and all short leases end.* So
//! a shard has a time of its own, stored with each batch, which follows the boot clock and stands still while nothing can be
//! committed. After a take-over or an outage no lease ends before its holder was served for thirty seconds, in which it
//! could be renewed, or for as long as it was granted for, if that is less. This does not apply to cooldowns, nor to leases
//! that were not granted yet, because nobody could renew those. *Redis is gone. A lease falls due before anybody knows that;
//! its end is decided, is sent again with everything that is in doubt, and is durable when Redis is back.* So if the store
//! has to be reached, a lease only ends after a commit or a proof that was begun after its end.
//! [`actors::clock`](crate::actors::clock); shown by `shard_time_ignores_the_wall_clock_and_goes_on_from_the_head`,
//! `schedules_keep_every_promise`, in which wall clocks jump,
//! `no_lease_runs_between_the_take_over_and_the_moment_from_which_it_can_be_renewed`,
//! `behind_a_disk_that_was_full_what_cools_and_what_is_leased_anew_ends_in_time`,
//! `time_in_which_the_process_stood_still_does_not_count`,
//! `a_lease_that_falls_due_when_an_outage_has_just_begun_can_be_renewed_behind_it`,
//! `a_thousand_leases_that_are_due_end_at_most_256_at_a_time_and_each_once`. *Otherwise:* a process that stands still for
//! less than four seconds cannot be told from one that nobody asked anything: such time counts, and clients that renew must
//! leave some seconds for it.
//!
//! **Leases say who may try, tokens who may write.** A node takes over a register that was let go, whose lease ran out
//! by the store's time, or that is handed over to it. Of two live nodes of one name the second is refused, and so is a node
//! without the secret beside others. *There is a slip in a node's secret. All other nodes refuse it, and at the next
//! failover it wins the register, and no other node can forward to it.* Of two secrets neither is right by itself, so the
//! node that starts is refused: by the owner, or by a node that is ready if none takes it ([`serve`](crate::serve),
//! `company`). A node that is ready waits. Nodes do not contend in step. A node that was replaced lets others go first for
//! two leases and some more, but only those that were seen within the last three seconds, so that no outage takes longer
//! because of it. An owner that most other nodes do not reach hands over by itself if another node is reached better.
//! [`serve`](crate::serve); shown by `a_node_that_was_stopped_past_its_lease_and_woken_neither_grants_nor_repeats_a_grant`,
//! `a_register_whose_clock_leaps_confuses_nobody`, `of_two_nodes_of_one_name_only_one_grants_at_a_time`,
//! `a_node_that_was_replaced_takes_the_register_at_once_where_no_other_is_there`,
//! `a_node_that_was_replaced_lets_one_that_is_there_go_first_for_a_lease_without_an_owner`,
//! `a_node_without_the_secret_is_refused_beside_others_and_never_takes_their_register`,
//! `a_node_with_another_secret_is_refused_beside_others_and_never_takes_their_register` and
//! `an_owner_that_the_other_nodes_do_not_reach_hands_the_register_to_one_that_they_do`. *Otherwise:* one node owns all
//! shards, because one script changes several networks together, all or none (deploy/README.md, *Several nodes*); so there
//! is nothing to distribute by hashing.
//!
//! **The successor in an orderly hand-over loads beside the owner.** The successor loads while the owner serves, then
//! reads the rest: the pause does not grow with the register. What clients feel is bounded by ten seconds (see
//! [`limits`](crate::limits)). The preparation before it, for which nobody waits, is bounded by two minutes: a shorter bound
//! would keep a large register on a slow machine from being handed over at all. [`actors::standby`](crate::actors::standby);
//! shown by `a_node_is_drained_under_load_and_no_client_is_put_off`, `a_large_register_is_handed_over_whole` and
//! `what_is_held_for_a_hand_over_that_never_comes_is_held_for_ten_seconds_and_answered_then`. *The history is short, and the
//! log of a busy shard is cut while the successor reads it.* So the owner keeps more while another node reads; shown by
//! `a_shard_whose_log_is_cut_while_it_is_read_beside_its_owner_is_told_to_be_so_and_is_kept_for_a_successor`. *An upgrade
//! skipped releases, so the two share no version of the protocol between nodes, and the successor cannot be asked to get
//! ready.* So an owner that is drained answers what it has begun and lets go, as one that stops does, and the other, which
//! waited without being ready, takes the register from the store. Secret and register are compared all the same.
//! [`serve`](crate::serve), `unspoken`; shown by
//! `a_node_without_a_common_version_waits_and_takes_the_register_with_all_that_is_in_it_when_its_owner_is_drained` and
//! `a_node_with_another_secret_is_refused_also_where_it_shares_no_version_with_the_owner`. *Otherwise:* all shards are handed
//! over at once, as one node owns them.
//!
//! **Order while forwarding.** Requests of one connection for one network are under way at one owner only: when the
//! role changes, newer requests are held until the older ones are answered. [`server::role`](crate::server::role); shown by
//! `one_connections_requests_for_a_slot_keep_their_order_through_hand_overs`,
//! `one_connections_requests_for_a_slot_keep_their_order_when_the_owner_is_killed`. *A client does not take its answers, so
//! its next requests are not begun; then the register goes to another node, and the client takes everything.* So whatever
//! makes a session continue, the session first looks at the present role of its node:
//! `what_was_held_back_until_its_client_takes_goes_to_nobody_whose_time_is_over`. *Otherwise:* a node does not collect and
//! resend requests that reached a node which no longer is the owner: the client is told to ask again, as nothing of them was
//! begun. An orderly hand-over needs none of that: all nodes are told before, and hold new requests
//! (`a_node_is_drained_under_load_and_no_client_is_put_off`). If an owner is lost, some earlier requests are in doubt, and
//! only the client knows whether the later ones are still to be done. Requests that wait for capacity go on waiting at the
//! next owner ([`server::session`](crate::server::session)): their clients were told nothing that they could act upon, and
//! would lose their turn.
//!
//! **Widen first, narrow last.** *A crash between two commits leaves the space of a network unguarded.* So space that
//! is added is noted in the catalog before it is committed, space that is given up afterwards: at any time the catalog
//! covers at least what networks have. [`actors::directory`](crate::actors::directory); shown by
//! `space_that_subnets_of_one_network_exchange_is_held_until_it_is_settled`,
//! `an_intent_outlives_a_listing_that_does_not_know_of_it`, `a_name_that_nobody_got_is_taken_for_nobody`. *A network has
//! more space, durably, and does not say so: it is swamped, stopped or being loaded again, or nobody can prove who owns the
//! register. The note ends with its act, and another network gets the space as well.* So a note for something that was sent
//! to be committed is only given up if it certainly was not committed. Otherwise the lock and the note end once the network,
//! or the store, has said what the network has; and if a subnet moves, the network that it goes to is listed first
//! (`actors::coordinator::locked`). Shown by `space_that_was_added_to_a_network_which_is_swamped_is_guarded`,
//! `space_that_was_added_to_a_network_which_is_stopped_behind_the_commit_is_guarded`,
//! `space_that_was_added_is_guarded_though_nobody_could_prove_behind_the_commit_whose_the_register_is`,
//! `a_panic_in_the_coordinator_behind_a_commit_leaves_its_name_and_its_space_to_the_network_that_is_durable` and
//! `a_subnet_that_moved_in_doubt_is_guarded_before_anybody_asks_the_network_that_has_it`. *A network is read so often that
//! something of it is always under way, and the store is only read when nothing is: the lock never ends.* So the network is
//! asked again, too; shown by
//! `an_act_on_a_network_that_is_read_all_the_time_ends_though_nobody_could_prove_behind_its_commit_whose_the_register_is`.
//! *A network is deleted; an act had it read before that, and reports what it read afterwards.* A network that is gone is
//! not listed again; shown by `what_is_said_of_a_network_when_it_is_gone_lists_it_no_more_and_guards_nothing`. *Otherwise:*
//! the catalog has no shard and no record of its own. It is built from what networks have when they are loaded, so no intent
//! survives a crash that would have to be settled.
//!
//! **Several networks change together or not at all.** All of them are held, each decides, and their steps become one
//! group, which the store applies as a whole; so no participant is ever in doubt by itself. This takes a store that commits
//! shards together: the embedded one, or a register in one slot of a Redis cluster.
//! [`actors::coordinator`](crate::actors::coordinator); shown by `a_joint_commit_is_all_or_nothing`,
//! `several_shards_are_committed_together_or_not_at_all`, `without_whole_commits_half_of_an_act_is_there`,
//! `an_act_over_two_networks_that_finds_something_else_is_done_in_neither`.
//!
//! - *A subnet moves, and a MAC with it. The move is given up, and the network that was to get the MAC is loaded before the
//!   one that still has it: a third network gets the MAC.* So what one network passes to another stays its own as well until
//!   that is durable; shown by `a_mac_that_goes_over_in_doubt_is_nobody_elses_until_both_know_what_became_of_it`.
//! - *A network is loaded again. Its entries are forgotten, another network claims one of its MACs, or space over an address
//!   that it recorded, and only then its entries are noted again.* So forgetting and noting are one step; shown by
//!   `what_a_network_uses_that_is_loaded_again_is_at_no_moment_free` and
//!   `what_a_network_has_that_is_loaded_again_is_at_no_moment_free`.
//! - *One act holds networks and waits for another act's note in the catalog; that act waits for a network, and the act that
//!   holds it waits for one of the first: all of them wait for ever.* So an act that holds networks waits for nothing but
//!   networks, in order of their ids, and an act waits for a note only if that is in its way (`actors::coordinator::moves`);
//!   shown by `a_move_that_waits_for_another_act_keeps_no_network_from_who_holds_what_that_act_needs`,
//!   `who_is_refused_for_what_is_durable_waits_for_no_act_that_has_nothing_to_do_with_it`.
//! - *A scope is released, network by network, while a subnet moves from a network that was not visited yet into one that
//!   was: its holdings stay, and the client is told that nothing is left.* So nothing moves while a job goes through
//!   networks (`Job::goes_through_networks`), from before the first network is visited until the last one has decided; shown
//!   by `what_moves_meanwhile_is_let_go_with_the_rest`, `who_holds_an_address_is_found_while_its_subnet_moves`.
//! - *An act holds one network and waits behind thousands of requests of the next: clients of the first one wait for all of
//!   them.* So an act that holds a network goes before the requests of the next one, none of which is of its own connection,
//!   and between two such acts one message of requests has its turn; shown by
//!   `a_network_that_is_held_with_one_that_has_much_to_do_answers_before_that_is_done` and
//!   `requests_of_a_network_go_on_however_many_hold_it_with_another_one`.
//! - *Otherwise:* there is no two-phase commit, as no act spans shards of two owners.
//!
//! **No act is larger than a batch, and batches are filled fairly.** *One network has ten thousand changes waiting;
//! its neighbour has one.* So a batch first takes a share of each network, by changes and by bytes, and larger work is done
//! in steps. `actors::committer::queue`; shown by `a_hot_network_leaves_its_neighbours_their_share_of_a_group`,
//! `units_of_a_network_keep_their_order_however_groups_are_filled`,
//! `a_network_that_remembers_much_is_closed_first_and_ends_in_slices`,
//! `a_purge_that_was_broken_off_is_finished_by_whoever_has_the_network_next`. *A client releases two hundred thousand
//! addresses by one `ip.acquire` that is `exact`: for seconds no network is served, and over Redis the lease is lost.* So a
//! request that is one commit but could be made in parts is refused if it is that large, whatever the store would take at
//! once, and the refusal says how to divide it; shown by
//! `an_exact_acquire_keeps_nobody_waiting_for_as_much_as_the_store_would_take`,
//! `what_can_be_asked_for_in_parts_keeps_redis_from_nobody_for_longer_than_a_subnet_that_moves`. *Otherwise:* a subnet moves
//! as a whole or not at all, so its bound is what the store takes, and over Redis what still lets a lease be renewed.
//!
//! **A panic is one `internal`.** *A bug leaves a network half changed in memory.* So changes are handed on only after
//! they were applied; a panic loads the network again, and three in a minute stop that network and no other. Nor does a
//! network whose records contradict each other keep a start, or the next owner, from serving the others. Shown by
//! `a_panic_is_one_internal_error_and_the_network_goes_on_from_the_store`,
//! `of_a_change_that_a_panic_left_half_done_nothing_is_there_and_nothing_is_answered_as_done`,
//! `an_act_over_two_networks_is_done_in_both_though_a_panic_left_one_of_them_half_changed`,
//! `three_panics_in_a_minute_stop_that_network_and_no_other`,
//! `a_start_stops_a_network_that_cannot_be_loaded_and_serves_the_others`,
//! `a_panic_in_the_coordinator_is_one_internal_error_and_leaves_neither_a_lock_nor_a_name`. *Otherwise:* a panic in the
//! committer or the directory ends the process, or over Redis the tenure ([`Fatal`](crate::actors::Fatal)): all networks
//! depend on these two, and what they have in memory is not known to agree with the store. The next start reads what is
//! durable; shown by `a_panic_in_the_committer_ends_the_process_and_nothing_acknowledged_is_lost`,
//! `a_panic_in_the_directory_ends_the_process_and_nothing_acknowledged_is_lost`.
//!
//! **No turn looks at everything.** *Somebody lists a million reservations, and everybody waits.* So a list is
//! answered in slices, and a scope is only looked for in networks that may hold something of it. *Between two slices a slot
//! moves: it is listed twice, or not at all.* So all slices of a list show their network as the first one did. The former
//! state of what changes meanwhile is kept (`core::network::past`), only while somebody lists, and up to a bound. Shown by
//! `a_slice_of_what_an_owner_of_much_holds_looks_at_so_many_records_and_no_more`,
//! `a_list_shows_each_slot_that_moves_meanwhile_once_and_its_cursor_repeats_nothing`,
//! `a_list_that_is_under_way_shows_what_was_let_go_since_whoever_held_it`,
//! `nothing_is_kept_for_a_list_that_is_over_and_not_more_than_so_much_for_one_that_is_not`,
//! `a_scope_that_holds_much_is_looked_at_in_slices_each_reservation_once`. *One address comes free, or one second is over,
//! and two thousand waiting requests have their turn: in slices, but all slices run without a pause.* So between two slices
//! the other tasks of the thread have their turn; shown by
//! `while_many_who_wait_have_their_turn_the_other_networks_of_the_thread_answer` and
//! `while_many_waits_end_together_the_other_networks_of_the_thread_answer`. *Otherwise:* there is an index of scopes but
//! none of owners: that would be a second copy of who holds what, changed by every grant. A request for an owner without a
//! scope asks all networks of a page at once (`actors::coordinator::walk`), each of which finds its holders by name.
//!
//! **Memory is what is held.** *A pool of a /64 is used once over.* So freed addresses are forgotten after their
//! cooldown, and the policy `oldest` remembers a bounded number of ranges. Shown by
//! `oldest_remembers_a_bounded_number_of_ranges_in_all_pools_together`.
//!
//! **A torn end is told from damage.** *A record that cannot be read is cut off, and it was acknowledged.* So a file
//! ends only where nothing valid follows and no mark says that more was durable; anything else refuses to start.
//! [`store::embedded`](crate::store::embedded); shown by `the_last_acknowledged_frame_is_not_taken_for_a_torn_tail`,
//! `a_damaged_frame_is_no_torn_tail_even_if_the_mark_is_old`, `whichever_disk_operation_fails_nothing_acknowledged_is_lost`;
//! of the file beside Redis by `a_write_that_lost_any_of_its_pages_is_torn_and_what_was_written_before_it_is_there`.
//! *A bit flips in a part of the history whose whole outcome is in a snapshot, and nobody is served.* So an operator may
//! give that history up (`--give-up-history`), and nothing but history: the part that is kept begins no later than where the
//! snapshot ends, and leads through the digest that the snapshot has there. Shown by
//! `a_flipped_bit_costs_history_at_most_where_a_snapshot_has_the_state_and_never_state`,
//! `killed_or_without_power_at_any_step_of_giving_history_up_the_same_option_starts_it_again`. *The bit flips in the
//! snapshot, and the operator restores a backup, although the log has every group.* So if the log leads to all of the state,
//! from its beginning or from an older snapshot, the error says so, and an operator may start from the log
//! (`--give-up-snapshot`); a running server that meets the damage makes the next snapshot from the log. Shown by
//! `a_damaged_snapshot_costs_nothing_where_the_log_has_all_that_led_to_it`,
//! `a_damaged_snapshot_is_refused_where_the_log_does_not_reach_what_it_had`,
//! `a_snapshot_that_rots_while_it_is_served_is_made_anew_of_the_log_that_has_all_of_it`.
//!
//! **What lies in Redis can be read by people.** *The server is down and somebody must know who has an address.* So
//! owner, scope and slot are text in hashes of bounded length, for dense and for sparse pools. Shown by
//! `an_operator_finds_who_holds_an_address`, `ipv6_of_any_density_lies_in_hashes_of_bounded_length`.
//!
//! **History is the line of batches.** *State was compacted, and nobody can tell who held an address last week.* So
//! each batch is kept as it was written, within limits of age and bytes. A cursor names its line, and a reader whose line
//! was cut off is told so. Shown by `history_outlives_snapshots_until_retention_ends`,
//! `whoever_watches_is_told_that_a_line_was_cut_off_and_nothing_else_is_lost`.
//!
//! **A copy is not the register.** *A restored register grants again what was granted after the copy was made.* So it
//! has a new identity, generations above all that can have been given, and chooses no address before somebody says that
//! everything in use was claimed. *The copying is broken off at its beginning, and the copy is started: it looks like a
//! register that was never begun.* So a copy says what it is becoming before anything else of it is there, and until it is
//! whole; shown by `a_copy_that_was_killed_is_no_register_and_is_made_anew_when_it_is_said_again`. A register that was moved
//! refuses its old place for ever. *It is moved to Redis and served. Redis forgets the last second, and with it that the
//! move was finished. Now it says that it is a broken copy, and the next move removes it, with everything that was granted
//! there; or a move of another register into the same place does.* So each end of a move waits for the replicas, and for the
//! disk; a running owner says again that its register is finished; nobody takes over a register that is not; and neither one
//! that was served, or of which that cannot be read, nor one that was moved from elsewhere is ever removed. A register that
//! was not moved is not left behind: *a server is started over Redis with the directory of its files, and later without Redis
//! again, and each register grants what the other one has granted.* Shown by
//! `neither_is_a_register_in_files_left_behind_for_one_in_redis_nor_a_register_in_redis_for_an_empty_one`,
//! `whatever_became_of_files_that_a_node_left_behind_long_ago_it_is_not_kept_from_its_register`,
//! `what_a_register_says_of_its_move_counts_when_the_replicas_that_follow_have_it`,
//! `a_target_that_is_taken_before_it_is_known_that_it_said_that_it_is_whole_was_moved`,
//! `a_node_that_lives_says_again_that_its_register_is_finished_and_no_move_removes_it`,
//! `what_was_served_and_may_not_be_whole_is_neither_removed_nor_is_its_source_opened_again`,
//! `what_may_have_been_served_is_not_removed_to_be_filled_anew`,
//! `a_move_from_elsewhere_removes_nothing_of_what_another_move_left_unfinished`,
//! `a_copy_is_another_register_with_higher_generations`, `a_restored_register_chooses_no_address_until_it_is_accepted`,
//! `a_node_that_wakes_after_the_move_takes_no_shard_and_writes_nothing`,
//! `a_node_that_slept_while_the_register_was_moved_ends_and_says_where_it_went`.
//!
//! **What is served is what a start would load.** *A byte of a file changes, somebody deletes a record in Redis, or
//! memory goes wrong in some way that nobody thought of: all is well until the next start, which grants what is held.* So
//! the owner reads the register again at intervals, beside its commits, and compares. Changes that were decided after a
//! shard was read are in the log after that point, and do not count as differences. A difference that is found twice stops
//! that network, and no other, and only an operator repairs it. The network's memory is gone with the next start, which goes
//! by the store: until then requests that read are answered from it, and an export has it; its actor may die without losing
//! it, and the register is not handed over in order, but for an owner that most others do not reach. Damage that cannot be
//! read is reported while memory still has the state. *Somebody writes 4 over the 8 shards of a register in Redis, or puts
//! an older META back: nobody looks there until a start believes it.* So the records beside the shards, and the heads, are
//! compared, too. A record of a deployment grants nothing, so no network is stopped for one that differs. But no plan can
//! be written on from it, so the deployment goes by the store at once, and the log has both.
//! [`actors::self_check`](crate::actors::self_check); shown by
//! `a_network_that_has_what_the_store_has_not_is_stopped_and_the_others_go_on`,
//! `a_network_that_differed_once_is_not_stopped`, `what_is_decided_while_it_is_compared_differs_from_nothing`,
//! `what_only_reads_is_answered_from_memory_by_a_network_that_is_not_what_is_stored`,
//! `a_network_that_is_not_what_is_stored_changes_nothing_not_even_in_part`,
//! `a_network_that_is_not_what_is_stored_stays_stopped_with_its_memory_where_its_actor_dies`,
//! `an_owner_of_which_memory_and_store_differ_is_not_drained_and_what_it_has_in_memory_is_shown_still`,
//! `what_the_page_says_of_a_network_that_differs_brings_back_what_the_store_lacks`,
//! `a_deployment_whose_record_is_not_what_is_stored_goes_by_the_store_and_no_network_is_stopped_for_it`,
//! `a_head_that_is_not_where_memory_stands_is_told_while_its_networks_go_on`,
//! `whatever_a_start_reads_beside_the_records_is_missed_where_it_says_something_else`,
//! `a_register_whose_own_key_says_something_else_than_when_it_was_opened_is_told_with_what_puts_it_back`,
//! `history_and_state_that_rot_while_they_are_served_are_found_by_whoever_reads_them_again`; over a real Redis, with its
//! alerts, by `alerts_fire_by_their_causes_and_stop_when_the_runbook_was_followed`. *Otherwise:* the indexes by which Redis
//! finds records are not compared, as a record that cannot be found is missed in its network; nor is its count of blocks,
//! which only makes a script check once more what memory has checked.
