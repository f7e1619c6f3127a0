//! Why nothing is handed out twice, whatever fails: the rules, and for each the story that needs it. Documentation only.
//!
//! What always holds is at the head of the crate (I-1 to I-14); here is what it takes where processes pause, machines lose
//! power, and Redis fails over to a replica that lacks the last writes. Comments name a rule by its number, as R-9. Each
//! names tests of its story, which is checked; the negative controls leave a rule out and show that something breaks. Where
//! less is done than the rule once asked for, it says so, and why, behind *Otherwise*.
//!
//! **A batch has a name: token, number, digest.** *A commit times out. The owner reads the head, concludes that it was
//! not applied, and gives its number to another batch; then the first one, which had waited in a socket, runs, and the second
//! is taken for done.* So a number has one content for ever: the same bytes are sent until the answer is definite, or the
//! shard is taken anew, and only then is anything read. [`store`](crate::store), `commit.lua`; shown by
//! `without_the_digest_a_number_that_was_used_twice_is_taken_for_one_batch`.
//!
//! **The fence is a random token.** *A failover goes back to before a take-over, and two nodes have the same epoch.* So
//! every script compares 128 random bits, drawn at each take-over; the epoch only orders. Whose lease lapsed never goes on under
//! its old token: it counts from when the last renewal was sent, on a clock that runs while the machine sleeps, and what the
//! store says of it later counts for nothing. Shown by `without_the_token_an_address_has_two_holders`,
//! `a_lease_that_lapsed_while_its_renewal_was_under_way_is_over_whatever_the_store_answers`,
//! `a_node_that_slept_through_its_lease_goes_on_by_itself_and_under_another_token`.
//!
//! **Answers without a write are fenced, too.** *A paused owner wakes and repeats a grant from its memory; the address
//! went to somebody else meanwhile, and as nothing was written nothing refused it.* So an answer leaves when all that it saw is
//! durable, and its owner was proved to own after the request had arrived: by a commit, or by one check for all that wait.
//! [`actors::committer`](crate::actors::committer); shown by `without_the_check_of_answers_something_stale_is_told`.
//! *Otherwise:* no read rests on the lease of its owner, which is kept at one Redis and proves nothing to its replicas: cut off
//! together, that Redis keeps it while a replica is promoted and another node takes over there, so what is read might be older
//! than any lease. While too few replicas answer reads are refused like all else, and say so; as a proof writes nothing, the
//! want of it puts nothing in doubt.
//!
//! **A change names what it expects to find.** *Memory is wrong in some way that nobody thought of.* So each record is
//! compared by generation before anything of a batch is written, and a mismatch reloads the network: nothing of the batch is
//! done, its answers say so, and it is counted and logged. Shown by `without_token_and_expectations_an_address_has_two_holders`,
//! `a_change_that_finds_something_else_is_not_done_and_its_network_serves_again_from_the_store`,
//! `what_travels_with_a_mismatch_is_refused_and_nothing_acknowledged_is_lost`.
//! *Otherwise:* what other networks had in the batch, and what waited behind it, is refused as not done, too, and those networks
//! are loaded again; it does not go out in another batch by itself. Memory was found wrong in a way that nobody thought of, so
//! what was decided beside it is not believed either; and the same number with other bytes would be sent on the way on which a
//! refused copy may still come twice. It costs a reload of what was under way. History has no word of it: nothing happened.
//!
//! **Blocks are compared as blocks.** *A /26 is one record at .0; a put of .17 finds its own field empty.* So for a put the
//! script looks for what covers it, by each length that is in use, and for a block over what lies inside. Of many that come at once
//! a hash is read once, and of what begins before it each length is asked for once: else the move of a large subnet would keep Redis
//! from all others for longer than a lease. Shown by `for_many_addresses_that_come_at_once_redis_is_not_asked_by_each_length_of_blocks`,
//! `a_put_inside_a_stored_block_is_refused`, `a_block_over_anything_that_is_held_is_refused`,
//! `where_there_are_no_blocks_nothing_is_read_because_of_them`,
//! `beside_a_network_with_blocks_another_one_of_its_shard_is_not_searched_for_any`. *Redis is started in a Czech locale: Lua compares
//! strings by that, a letter comes before a digit, and an address of the block's is taken for one beside it.* So addresses are compared by
//! bytes; shown by `a_put_inside_a_block_and_a_block_over_what_is_held_are_refused_whatever_the_locale_of_redis`,
//! `ipv6_addresses_are_found_where_they_lie_whatever_the_locale_of_redis`, and for what lies astray of before by
//! `records_that_lie_astray_are_brought_where_they_are_looked_for_when_their_shard_is_loaded`. *Otherwise:* what the head counts are the blocks
//! of a shard: beside a network with blocks it is asked of the others of its shard whether they have any.
//!
//! **Memory never runs on after doubt.** *Not applied* is sent again, in order, for two seconds, and a large move for up to
//! six; then, and where the outcome is unknown, what was decided on that memory is given up, refusals and reads included, and
//! loaded anew. Nothing of it ever leaves. *The last address was granted, somebody else begins to wait, and the grant is given
//! up: the address is free, and nobody asks for anything that would show it.* So whose memory is given up is told, and loads itself
//! again whether it is asked anything or not. *A disk is full, and what it keeps for releases is used up: whoever repeats one that
//! finds no room has everybody's networks loaded again each time.* So what it has room for is claimed before anything is decided, and
//! of a group that was decided before that only what there is no room for is given up, with what its networks decided behind it
//! (`committer::cut`). [`actors::committer`](crate::actors::committer); shown by
//! `whichever_commit_fails_answers_and_store_agree`,
//! `who_found_no_room_beside_a_grant_that_came_to_nothing_is_served_with_nothing_else_asked`,
//! `a_release_that_finds_no_room_on_a_full_disk_is_refused_before_memory_has_it_and_smaller_ones_go_on`,
//! `what_lets_go_beside_a_grant_that_a_full_store_refuses_is_done_and_costs_nobody_a_reload`,
//! `a_large_subnet_may_take_longer_to_move_than_the_store_has_for_other_changes`.
//!
//! **Confirming is not committing.** *WAIT between commits holds up each of them; on a connection that wrote nothing it
//! says yes to nothing.* So there are two connections: one commits, the other writes a mark behind all that is to be confirmed
//! and waits once. What is confirmed on another connection than it was committed before is *unknown*. Shown by
//! `without_confirmation_something_acknowledged_is_lost`, `the_next_batch_is_committed_while_one_waits_for_its_replica`,
//! `a_connection_that_is_replaced_before_the_confirmation_leaves_the_outcome_unknown`,
//! `while_a_replica_that_is_waited_for_hears_nothing_nothing_is_acknowledged`,
//! `with_a_replica_waited_for_an_owner_that_is_cut_off_with_its_primary_acknowledges_and_shows_nothing`.
//!
//! **k replicas, or the own disk.** *One of two replicas is gone for the night: nothing is granted until morning, or the
//! second failover loses what was told meanwhile.* Below k nothing is acknowledged; where an operator allows it
//! (`store.redis_degrade`), what the others have and the disk of the owner has, too, is, and every place that shows the register
//! shows that. The disk has all that k replicas are not known to have, also what they had before Redis went back, and lets
//! go of it when they have it again, or when it is put aside: nothing else of the line goes with that. k has no other default than
//! 0: what may be promoted is not what is connected, and only an operator knows it.
//! *The register is moved before that is brought: what it became is another one, and nobody looks at the file.* So a start with
//! another register is refused, in Redis or in files, as with a late journal; shown by
//! `what_was_acknowledged_in_another_register_and_lies_beside_this_one_is_told_before_anything_is_granted` and
//! `what_was_kept_of_another_register_is_refused_by_name_and_given_up_only_where_somebody_says_so`.
//! Shown by `with_too_few_replicas_nothing_is_acknowledged_until_they_are_there`,
//! `what_a_node_acknowledged_without_its_replica_survives_the_primary_and_the_process`,
//! `what_is_played_again_without_the_replica_is_on_the_disk_as_well`,
//! `what_another_owner_went_on_from_stays_on_the_disk_when_the_rest_is_put_aside`,
//! `the_file_is_not_emptied_before_what_the_owner_of_now_lacks_is_put_aside`.
//!
//! **Healing only on one's own line.** *B acknowledged 100 to 110; the register goes back to 98; C takes over and grants
//! the same addresses; B comes back and sees a head further on: for it nothing went back.* So each head names its token,
//! its number and a digest of all before it. What is on an owner's own line is played again, byte for byte; what is not becomes
//! a *late journal*: claims that the present owner gives back where address and slot are free. Where they are not, the network
//! has a conflict and grants nothing until somebody decides; nobody is put out and nothing is dropped.
//! [`store::late`](crate::store::late); shown by
//! `where_somebody_else_came_in_between_nothing_is_played_and_what_is_missing_is_put_aside`,
//! `a_redis_that_goes_back_past_an_owners_own_take_over_is_given_back_that_too`,
//! `a_node_that_lost_the_register_while_it_was_cut_off_leaves_it_to_who_has_it_though_redis_forgot_that`,
//! `a_node_that_stops_when_redis_went_back_gives_back_what_it_acknowledged_first`,
//! `what_an_owner_acknowledged_that_was_cut_off_with_its_primary_comes_back_as_claims_and_conflicts`. *A batch is under way
//! when its owner is cut off; Redis applies it, the next owner goes on from it, and then Redis goes back to before it: the first
//! one does not know that there is something to give back, and the line of the next one begins behind it.* So whoever takes a
//! shard remembers the last batches that it found there, too; shown by
//! `a_batch_that_was_under_way_when_its_owner_was_cut_off_is_given_back_by_who_went_on_from_it`,
//! `a_batch_that_was_under_way_when_its_process_ended_is_given_back_by_the_next_one_of_its_node`,
//! `what_was_under_way_when_its_node_was_cut_off_is_given_back_by_who_went_on_from_it`. *Redis is down, and everything is started
//! again: whoever knew what it lost is gone.* So a process that is asked to stop, and cannot know that the register has what it
//! acknowledged, leaves that on its disk, and the next one has it as if it had sent it; shown by
//! `a_node_that_ends_while_redis_is_away_gives_back_what_that_lost_when_it_is_started_again` and
//! `what_a_node_left_when_it_ended_is_claimed_where_another_one_went_on_meanwhile`. *A replica was promoted, and the primary of before is
//! on its way back: nobody follows, so nobody seems to lack anything. The owner is stopped, and the one that was away is promoted
//! next.* So where somebody decides who the primary is, all that they know of must follow, or what it acknowledged is left; shown by
//! `a_node_that_is_stopped_while_one_that_may_be_promoted_is_away_leaves_what_it_acknowledged`. A late claim that was answered by a conflict is
//! one again where that answer is cut off, too; shown by
//! `a_conflict_that_was_found_on_a_line_that_is_cut_off_is_claimed_again_until_it_was_decided`. *A holder renews, and is told of two
//! hours; the failover loses that, his lease ends by the register, and somebody else is given the address.* So a renewal is a claim,
//! too: the lease is as long again as he was told, and where it ended meanwhile the address is held again, or there is a conflict;
//! shown by `what_is_held_for_longer_at_the_end_is_claimed_with_until_when_it_was_held_before`,
//! `who_was_told_that_his_lease_is_longer_has_it_for_so_long_and_never_for_less`,
//! `a_renewed_lease_that_ended_here_is_held_again_or_a_conflict_until_the_end_that_was_told`,
//! `whoever_renewed_on_a_line_that_is_cut_off_has_it_for_as_long_as_he_was_told_and_history_tells_of_it`. *His subnet moved to another
//! network before he renewed, and the move is cut off as well: the network that told him has no place for him, and would grant nothing
//! for a conflict in which nobody is.* So it is claimed where he is, or where that space is by now; shown by
//! `a_lease_that_was_renewed_behind_a_move_that_is_cut_off_is_longer_where_its_holder_is`. *It is granted there, to somebody new: who
//! has the space has the address free, and gives it away beside a claim that lies elsewhere.* So a grant goes there, too, and is a
//! conflict of the network that told of it only where nobody of the realm has that space; shown by
//! `a_grant_behind_a_move_that_is_cut_off_is_claimed_where_its_space_is`. *Before the move it was granted to another one, who let go
//! behind it: his claim and that of the next one are of one place, and the first to come would have it.* So what one journal grants
//! and another ends, where it came with its subnet, is claimed no more, which is known before any of them is brought; shown by
//! `who_let_go_behind_a_move_that_is_cut_off_is_not_given_back_what_the_next_one_has`. And a conflict whose claim comes once more when
//! nobody is in its way is none; shown by `a_conflict_whose_late_holder_has_the_address_by_now_is_none`. *Otherwise:* a release, and
//! who uses an address, its labels, its MAC and configuration, are told as cut off and not repeated: nobody can say whether what was
//! decided since is meant instead. And only what a node sent
//! itself and has kept is played, the last `store.redis_heal_bytes`, and of the owner before eight batches a shard. What went
//! back further stops everything, and is not written over: what is there may be all that anybody has, should whoever writes it
//! end on the way. What lost everything has nothing to lose. *All nodes are stopped, and an older copy of Redis is brought
//! back: nobody lives who would notice.* So a stop in order notes how far was acknowledged, and no start goes on from before it;
//! shown by `an_older_copy_that_is_brought_back_while_no_node_runs_is_refused_until_somebody_accepts_it`. Nor is it moved away into the
//! directory that notes more; shown by `a_redis_that_went_back_is_not_moved_into_the_directory_that_knows_of_more`. Where a store stopped
//! because Redis went back, that is noted, and the last look of that store leaves it, though all that it lacks is put aside by
//! then; shown by `the_last_look_of_a_store_that_stopped_leaves_what_forbids_the_next_start`.
//!
//! **An empty store is not a new one.** *FLUSHALL, or a restart without its file: a node finds no head, and everything is
//! free again.* So the first start writes the register's name and a head for each shard; nodes keep the name in a file, and
//! refuse another one or none; also while they run, for *Redis may come back with the files of another register, whose heads look
//! as if somebody had gone on from further back.* An owner that lives has all that was acknowledged in memory, and writes it anew
//! where nothing of a register is: under fresh tokens, so that nothing that was on its way counts; closed to all until it was
//! read once more; and only where its lease is in force, or where it has no secret, so that it shares the register with nobody, and
//! saw nobody: else another one may have owned it since. *It may have come, granted and gone with what Redis had, and neither ever
//! reached the other.*
//! *Redis is emptied once more meanwhile, or an answer is lost: what is there unfinished would keep it from being written.* So it is tried
//! again until it is whole, and what this node itself began goes; shown by
//! `a_register_whose_redis_is_emptied_again_while_it_is_written_anew_is_written_all_the_same`,
//! `what_was_begun_anew_and_is_unfinished_is_begun_once_more_by_who_began_it`. *It is not written anew, the node ends, and its operator
//! brings an older copy: it is its own line, and nothing says what is missing.* So it leaves what it acknowledged, as at any end that does
//! not know what Redis has, and how far that was; shown by
//! `what_an_owner_acknowledged_whose_redis_was_emptied_is_given_back_to_an_older_copy`,
//! `what_a_node_acknowledged_that_let_go_before_redis_was_emptied_is_given_back_to_an_older_copy`,
//! `an_older_copy_is_refused_where_what_was_acknowledged_is_remembered_no_more`.
//! What was decided and never durable is told from what was by the way back that each network keeps
//! ([`core::network::WayBack`](crate::core::network::WayBack)). [`store::redis`](crate::store::redis); shown by
//! `an_emptied_server_stops_the_store_and_the_next_start`, `a_head_that_is_missing_is_damage`,
//! `a_register_whose_redis_is_emptied_under_load_is_written_anew_and_nothing_acknowledged_is_lost`,
//! `nodes_that_share_a_register_grant_nothing_from_a_redis_that_comes_back_empty_after_their_leases`,
//! `an_owner_that_is_back_writes_nothing_over_what_a_node_granted_that_it_never_saw`,
//! `a_running_node_grants_nothing_from_another_register_and_ends_naming_both`. *Files are moved to Redis, and the first start over it
//! names another database: nothing is noted yet.* So what a move leaves beside the files is a note, too; shown by
//! `a_node_whose_files_were_moved_to_redis_begins_no_register_where_that_one_is_not`. *Otherwise:* all of a register is written anew or
//! none of it, as it lies in one place: one head that is gone from among others is damage. And a node with a new directory knows no
//! name: where nothing is it begins an empty register, which the log says (`began a new, empty register`), with what to look at
//! where the node has a secret that others share.
//!
//! **Generations never repeat.** The next one is above all that is stored, and above the clock's seconds times 2^20: both
//! must fail to repeat one. [`actors::generations`](crate::actors::generations); shown by
//! `a_network_that_is_made_again_after_the_clock_went_back_repeats_no_generation`,
//! `generations_do_not_repeat_after_a_commit_in_doubt`.
//!
//! **Leases and cooldowns err late only.** *The new owner's clock is ten minutes ahead, and all short leases end.* So a
//! shard has a time of its own, stored with each batch, that follows the boot clock and stands still while nothing can be
//! committed; after a take-over or an outage no lease ends before its holder was served for thirty seconds, in which it could be
//! renewed, or for as long as it was granted for, if that is less. Nobody renews what cools, nor what was not granted yet: neither
//! waits for that. *Redis is gone; what falls due before anybody knows is decided, is sent again with all that is in doubt, and is
//! durable when it is back.* So where the store has to be reached a lease ends behind a commit or a proof that was begun after its
//! end. [`actors::clock`](crate::actors::clock);
//! shown by `a_register_whose_clock_leaps_confuses_nobody`,
//! `no_lease_runs_between_the_take_over_and_the_moment_from_which_it_can_be_renewed`,
//! `behind_a_disk_that_was_full_what_cools_and_what_is_leased_anew_ends_in_time`,
//! `time_in_which_the_process_stood_still_does_not_count`,
//! `a_lease_that_falls_due_when_an_outage_has_just_begun_can_be_renewed_behind_it`,
//! `a_thousand_leases_that_are_due_end_at_most_256_at_a_time_and_each_once`.
//! *Otherwise:* a process that stands still for less than four seconds is not told from one that nobody asked anything: such a
//! time counts, and whoever renews leaves some seconds for it.
//!
//! **Leases say who may try, tokens who may write.** A register is taken over when it was let go, when its lease ran out by
//! the store's time, or when it is handed over. Two live nodes of one name: the second is refused, and so is one without the
//! secret beside others. *A secret has a slip; all nodes refuse whoever has it, and at the next failover he wins the register, which
//! nobody else can ask for then.* Of two secrets none is the right one by itself, so it is the node that starts which is refused:
//! by the owner, or by one that is ready where none takes it ([`serve`](crate::serve), `company`). One that is ready waits. Nodes do not contend in step; one that was replaced lets others go first for two leases and some more, but
//! only those that were seen within three seconds, so that no outage is longer for it. An owner that most others do not reach
//! hands over by itself where another node is reached better. [`serve`](crate::serve); shown by
//! `a_node_that_was_stopped_past_its_lease_and_woken_neither_grants_nor_repeats_a_grant`,
//! `of_two_nodes_of_one_name_only_one_grants_at_a_time`,
//! `a_node_that_was_replaced_takes_the_register_at_once_where_no_other_is_there`,
//! `a_node_that_was_replaced_lets_one_that_is_there_go_first_for_a_lease_without_an_owner`,
//! `a_node_without_the_secret_is_refused_beside_others_and_never_takes_their_register`,
//! `a_node_with_another_secret_is_refused_beside_others_and_never_takes_their_register` and
//! `an_owner_that_the_other_nodes_do_not_reach_hands_the_register_to_one_that_they_do`. *Otherwise:* one node owns all shards,
//! because one script changes several networks together, all or none (deploy/README.md, *Several nodes*); so there is nothing
//! to spread by hashing.
//!
//! **Who takes over in order loads beside.** The successor loads while the owner serves, then reads what is left: the
//! pause does not grow with the register. What clients feel is bounded by ten seconds
//! (see [`limits`](crate::limits)); getting ready before, which nobody waits for, by two minutes: less
//! would keep a large register on a slow machine from being handed over at all. [`actors::standby`](crate::actors::standby);
//! shown by `a_node_is_drained_under_load_and_no_client_is_put_off`, `a_large_register_is_handed_over_whole` and
//! `what_is_held_for_a_hand_over_that_never_comes_is_held_for_ten_seconds_and_answered_then`. *The history is kept for little, and the log of
//! a busy shard is cut while it is read.* So while another node reads the owner keeps more; shown by
//! `a_shard_whose_log_is_cut_while_it_is_read_beside_its_owner_is_told_to_be_so_and_is_kept_for_a_successor`. *Otherwise:* all shards go at once, as one node
//! owns them.
//!
//! **Order while forwarding.** Requests of one connection for one network are under way at one owner only: when the role
//! changes, newer ones are held until the older ones are answered. [`server::role`](crate::server::role); shown by
//! `one_connections_requests_for_a_slot_keep_their_order_through_hand_overs`,
//! `one_connections_requests_for_a_slot_keep_their_order_when_the_owner_is_killed`. *A client leaves what it is answered where it
//! is, so what it asked next is not begun; then the register goes to another node, and the client takes it all.* So whatever
//! makes a session go on, it looks first at what its node is by then:
//! `what_was_held_back_until_its_client_takes_goes_to_nobody_whose_time_is_over`. *Otherwise:* what came to a node that is no
//! owner any more is not collected and sent again by the node that asked it: its client is told to ask again, as nothing of
//! it was begun. A hand-over in order needs none of that: all nodes are told before, and hold what comes
//! (`a_node_is_drained_under_load_and_no_client_is_put_off`). Where an owner is lost, some of what was asked before is in doubt;
//! behind that only the client knows whether the rest is still to be done. Who waits for capacity goes on waiting at the next
//! owner ([`server::session`](crate::server::session)): it was told nothing that it could act upon, and has a turn to lose.
//!
//! **Widen first, narrow last.** *A crash between two commits leaves the space of a network guarded by nobody.* So what
//! grows is noted in the catalog before it is committed, what shrinks after: at any time the catalog covers at least what
//! networks have. [`actors::directory`](crate::actors::directory); shown by
//! `space_that_subnets_of_one_network_exchange_is_held_until_it_is_settled`,
//! `an_intent_outlives_a_listing_that_does_not_know_of_it`, `a_name_that_nobody_got_is_taken_for_nobody`. *A network has more
//! space, durably, and does not say so: it is swamped, stopped or loaded again, or nobody proves whose the register is. The note
//! ends with its act, and another network gets the space as well.* So what was sent to be committed is given up only where it
//! certainly was not; else the lock and the note end behind what the network has, or what the store has of it, and of a subnet
//! that moves the network that it goes to is listed first (`actors::coordinator::locked`). Shown by
//! `space_that_was_added_to_a_network_which_is_swamped_is_guarded`,
//! `space_that_was_added_to_a_network_which_is_stopped_behind_the_commit_is_guarded`,
//! `space_that_was_added_is_guarded_though_nobody_could_prove_behind_the_commit_whose_the_register_is`,
//! `a_panic_in_the_coordinator_behind_a_commit_leaves_its_name_and_its_space_to_the_network_that_is_durable` and
//! `a_subnet_that_moved_in_doubt_is_guarded_before_anybody_asks_the_network_that_has_it`. *The network is read so much that something
//! of it is always under way, and the store is read when nothing is: the lock never ends.* So the network is asked beside that again;
//! shown by `an_act_on_a_network_that_is_read_all_the_time_ends_though_nobody_could_prove_behind_its_commit_whose_the_register_is`. *A
//! network is deleted; whoever acted on it had it read before that, and says so afterwards.* What is gone is not listed any more;
//! shown by `what_is_said_of_a_network_when_it_is_gone_lists_it_no_more_and_guards_nothing`. *Otherwise:* the
//! catalog has no shard and no record of its own. It is made from what networks have when they are loaded, so no intent is
//! left over a crash that would have to be settled.
//!
//! **Several networks change together or not at all.** All of them are held, each decides, and their steps become one
//! group, which the store applies whole; so no participant is ever in doubt by itself. It takes a store that commits shards
//! together: the embedded one, or a register in one slot of a Redis cluster. [`actors::coordinator`](crate::actors::coordinator);
//! shown by `without_whole_commits_half_of_an_act_is_there`, `an_act_over_two_networks_that_finds_something_else_is_done_in_neither`.
//! *A subnet moves, and a MAC with it; that is given up, and whoever was to have it is loaded before whoever has it still: a third
//! network is given the MAC.* So what one network lets another one have is its own as well until that is durable;
//! shown by `a_mac_that_goes_over_in_doubt_is_nobody_elses_until_both_know_what_became_of_it`.
//! *A network is loaded again. What it had is forgotten, another network claims one of its MACs, or space over an address that it wrote
//! down, and then what it has is noted.* So both are one step; shown by `what_a_network_uses_that_is_loaded_again_is_at_no_moment_free`
//! and `what_a_network_has_that_is_loaded_again_is_at_no_moment_free`.
//! *One act holds networks and waits for the note of another in the catalog, that one for a network, and who holds that for one
//! of the first: all of them wait for ever.* So who holds networks waits for nothing but networks, in order of their ids, and
//! who waits for a note for none that is not in its way (`actors::coordinator::moves`); shown by
//! `a_move_that_waits_for_another_act_keeps_no_network_from_who_holds_what_that_act_needs`,
//! `who_is_refused_for_what_is_durable_waits_for_no_act_that_has_nothing_to_do_with_it`.
//! *A scope is let go, network by network, while a subnet moves from one that was not looked at yet into one that was: what lies in
//! it stays, and whoever asked is told that nothing is left.* So nothing moves while anything goes through networks
//! (`Job::goes_through_networks`), from before the first is looked at until the last has decided; shown by
//! `what_moves_meanwhile_is_let_go_with_the_rest`, `who_holds_an_address_is_found_while_its_subnet_moves`.
//! *An act holds one network and waits behind thousands of requests of the next: who asks the first one waits for all of them.* So
//! whoever holds a network goes before the requests of the next one, of which none is of his connection, and between two such one
//! message of them has its turn; shown by `a_network_that_is_held_with_one_that_has_much_to_do_answers_before_that_is_done` and
//! `requests_of_a_network_go_on_however_many_hold_it_with_another_one`.
//! *Otherwise:* there are no two phases, as no act is over shards of two owners.
//!
//! **No act is larger than a batch, and batches are filled fairly.** *One network has ten thousand changes waiting; its
//! neighbour has one.* So a batch takes a share of each network first, by changes and by bytes, and what is larger goes on in
//! steps. `actors::committer::queue`; shown by `a_hot_network_leaves_its_neighbours_their_share_of_a_group`,
//! `units_of_a_network_keep_their_order_however_groups_are_filled`,
//! `a_network_that_remembers_much_is_closed_first_and_ends_in_slices`,
//! `a_purge_that_was_broken_off_is_finished_by_whoever_has_the_network_next`. *Somebody lets go of two hundred thousand addresses by one
//! `ip.acquire` that is `exact`: for seconds no network is served, and over Redis the lease is lost.* So what is one commit and could
//! be asked for in parts is refused where it is that much, and says how to part it, whatever the store would take at once; shown by
//! `an_exact_acquire_keeps_nobody_waiting_for_as_much_as_the_store_would_take`,
//! `what_can_be_asked_for_in_parts_keeps_redis_from_nobody_for_longer_than_a_subnet_that_moves`. *Otherwise:* a subnet moves whole or
//! not at all, so its bound is what the store takes, and over Redis what lets a lease be renewed.
//!
//! **A panic is one `internal`.** *A bug leaves a network half changed in memory.* So changes are handed on only after they
//! were applied; a panic loads the network again, and three in a minute stop it and no other. Shown by
//! `a_panic_is_one_internal_error_and_the_network_goes_on_from_the_store`,
//! `three_panics_in_a_minute_stop_that_network_and_no_other`,
//! `a_panic_in_the_coordinator_is_one_internal_error_and_leaves_neither_a_lock_nor_a_name`. *Otherwise:* a panic in the committer
//! or the directory ends the process, or over Redis the tenure ([`Fatal`](crate::actors::Fatal)): they stand behind all
//! networks, and what they have in memory is not known to agree with the store. Whoever starts it next reads what is
//! durable; shown by `a_panic_in_the_committer_ends_the_process_and_nothing_acknowledged_is_lost`,
//! `a_panic_in_the_directory_ends_the_process_and_nothing_acknowledged_is_lost`.
//!
//! **No turn looks at everything.** *Somebody lists a million reservations, and everybody waits.* So a list is answered in
//! slices, and what is of a scope is asked only where something of it may be held. *Between two slices a slot moves: it is listed
//! twice, or not at all.* So all slices of a list show their network as the first one did; what changes meanwhile is kept as
//! it was (`core::network::past`), only as long as somebody lists and only so much. Shown by
//! `a_slice_of_what_an_owner_of_much_holds_looks_at_so_many_records_and_no_more`,
//! `a_list_shows_each_slot_that_moves_meanwhile_once_and_its_cursor_repeats_nothing`,
//! `a_list_that_is_under_way_shows_what_was_let_go_since_whoever_held_it`,
//! `nothing_is_kept_for_a_list_that_is_over_and_not_more_than_so_much_for_one_that_is_not`,
//! `a_scope_that_holds_much_is_looked_at_in_slices_each_reservation_once`. *One address comes free, or one second is over, and two thousand
//! who wait have their turn: in slices, but one after the other in one breath.* So between two slices the others of the thread have
//! their turn; shown by `while_many_who_wait_have_their_turn_the_other_networks_of_the_thread_answer` and
//! `while_many_waits_end_together_the_other_networks_of_the_thread_answer`. *Otherwise:* there is an index of scopes and none of
//! owners: that would be a second copy of who holds what, changed by every grant. Who asks for an owner without a scope asks
//! all networks of a page at once (`actors::coordinator::walk`), each of which finds its holders by name.
//!
//! **Memory is what is held.** *A pool of a /64 is used once over.* So freed addresses are forgotten after their cooldown,
//! and the policy `oldest` remembers so many ranges and no more. Shown by
//! `oldest_remembers_a_bounded_number_of_ranges_in_all_pools_together`.
//!
//! **A torn end is told from damage.** *A record that cannot be read is cut off, and it was acknowledged.* So files end
//! where nothing valid follows and no mark says that it was durable; anything else refuses to start.
//! [`store::embedded`](crate::store::embedded); shown by `the_last_acknowledged_frame_is_not_taken_for_a_torn_tail`,
//! `a_damaged_frame_is_no_torn_tail_even_if_the_mark_is_old`,
//! `whichever_disk_operation_fails_nothing_acknowledged_is_lost`. *A bit turns over in history of which a snapshot has all that it led
//! to, and nobody is served.* So an operator may give that history up (`--give-up-history`), and nothing but history: what is kept
//! begins no later than where the snapshot ends, and leads through the digest that this has there. Shown by
//! `a_flipped_bit_costs_history_at_most_where_a_snapshot_has_the_state_and_never_state`,
//! `killed_or_without_power_at_any_step_of_giving_history_up_the_same_option_starts_it_again`. *It turns over in the snapshot, and the
//! operator takes a backup, although the log has every group.* So where the log is judged to lead to all of the state, from its
//! beginning or behind an older snapshot, that is said, and an operator may go on from it (`--give-up-snapshot`); a server that meets it
//! makes the next snapshot of the log. Shown by `a_damaged_snapshot_costs_nothing_where_the_log_has_all_that_led_to_it`,
//! `a_damaged_snapshot_is_refused_where_the_log_does_not_reach_what_it_had`,
//! `a_snapshot_that_rots_while_it_is_served_is_made_anew_of_the_log_that_has_all_of_it`.
//!
//! **What lies in Redis can be read by people.** *The server is down and somebody must know who has an address.* So owner,
//! scope and slot are text in hashes of bounded length, for dense pools and sparse ones. Shown by
//! `an_operator_finds_who_holds_an_address`, `ipv6_of_any_density_lies_in_hashes_of_bounded_length`.
//!
//! **History is the line of batches.** *State was compacted, and who held it last week is gone.* So each batch is kept as it
//! was written, by age and bytes; a cursor names its line, and one of a line that was cut off is told so. Shown by
//! `history_outlives_snapshots_until_retention_ends`,
//! `whoever_watches_is_told_that_a_line_was_cut_off_and_nothing_else_is_lost`.
//!
//! **A copy is not the register.** *A restored register gives what was granted since the copy was made.* So it has a new
//! identity, generations above all that can have been given, and chooses no address before somebody says that what is in use
//! was claimed. *The copy is cut off at its beginning, and started: what is there looks like a register that was never begun.* So it says
//! what it is becoming before anything else of it is there, and until it is whole; shown by
//! `a_copy_that_was_killed_is_no_register_and_is_made_anew_when_it_is_said_again`. A register that was moved refuses its old place for ever. *It is moved to Redis and served; Redis forgets the last
//! second, and with it that the move was finished. It says that it is a broken copy, and the next move removes it, with all that was
//! granted there; or one of another register into the same place does.* So each end of a move waits for the replicas, and for the disk; an owner that lives says again that its register is
//! finished; nobody takes what is not; and neither what was served nor what was moved from elsewhere is ever removed. One that was not moved is not left behind: *a server is
//! started over Redis with the directory of its files, and later without Redis again, and each register grants what the other one
//! has.* Shown by
//! `neither_is_a_register_in_files_left_behind_for_one_in_redis_nor_a_register_in_redis_for_an_empty_one`,
//! `whatever_became_of_files_that_a_node_left_behind_long_ago_it_is_not_kept_from_its_register`,
//! `what_a_register_says_of_its_move_counts_when_the_replicas_that_follow_have_it`,
//! `a_target_that_is_taken_before_it_is_known_that_it_said_that_it_is_whole_was_moved`,
//! `a_node_that_lives_says_again_that_its_register_is_finished_and_no_move_removes_it`,
//! `what_was_served_and_may_not_be_whole_is_neither_removed_nor_is_its_source_opened_again`,
//! `a_move_from_elsewhere_removes_nothing_of_what_another_move_left_unfinished`,
//! `a_copy_is_another_register_with_higher_generations`, `a_restored_register_chooses_no_address_until_it_is_accepted`,
//! `a_node_that_wakes_after_the_move_takes_no_shard_and_writes_nothing`,
//! `a_node_that_slept_while_the_register_was_moved_ends_and_says_where_it_went`.
//!
//! **What is served is what a start would load.** *A byte of a file changes, somebody deletes a record in Redis, memory goes
//! wrong in some way that nobody thought of: all is well until the next start, which gives away what is held.* So the owner reads
//! the register again every so often, beside its commits, and compares. What was decided since it was read is in the log behind that,
//! and counts for nothing; what differs twice stops that network, and no other, and nobody mends it but an operator. What it has in
//! memory is gone with the next start, which goes by the store: until then it is answered to whoever reads it, and an export has it.
//! What cannot be read is told while memory has it. [`actors::self_check`](crate::actors::self_check); shown by
//! `a_network_that_has_what_the_store_has_not_is_stopped_and_the_others_go_on`, `a_network_that_differed_once_is_not_stopped`,
//! `what_is_decided_while_it_is_compared_differs_from_nothing`,
//! `what_only_reads_is_answered_from_memory_by_a_network_that_is_not_what_is_stored`,
//! `a_network_that_is_not_what_is_stored_changes_nothing_not_even_in_part`,
//! `what_the_page_says_of_a_network_that_differs_brings_back_what_the_store_lacks`,
//! `history_and_state_that_rot_while_they_are_served_are_found_by_whoever_reads_them_again`; over a real Redis, with its alerts, by
//! `alerts_fire_by_their_causes_and_stop_when_the_runbook_was_followed`. *Otherwise:* records of deployments are not compared.
