//! Why nothing is handed out twice, whatever fails: the rules, and for each the story that needs it. Documentation only.
//!
//! What always holds is at the head of the crate (I-1 to I-14); here is what it takes where processes pause, machines lose
//! power, and Redis fails over to a replica that lacks the last writes. Comments name a rule by its number, as R-9. Every
//! story is a test; the negative controls leave a rule out and show that something breaks.
//!
//! **A batch has a name: token, number, digest.** *A commit times out. The owner reads the head, concludes that it was
//! not applied, and gives its number to another batch; then the first one, which had waited in a socket, runs, and the second
//! is taken for done.* So a number has one content for ever: the same bytes are sent until the answer is definite, or the
//! shard is taken anew, and only then is anything read. [`store`](crate::store), `commit.lua`; shown by
//! `without_the_digest_a_number_that_was_used_twice_is_taken_for_one_batch`.
//!
//! **The fence is a random token.** *A failover goes back to before a take-over, and two nodes have the same epoch.* So
//! every script compares 128 random bits, drawn at each take-over; the epoch only orders. Whose lease lapsed never goes on under
//! its old token. Shown by `without_the_token_something_is_wrong`.
//!
//! **Answers without a write are fenced, too.** *A paused owner wakes and repeats a grant from its memory; the address
//! went to somebody else meanwhile, and as nothing was written nothing refused it.* So an answer leaves when all that it saw is
//! durable, and its owner was proved to own after the request had arrived: by a commit, or by one check for all that wait.
//! [`actors::committer`](crate::actors::committer); shown by `without_the_check_of_answers_something_stale_is_told`.
//!
//! **A change names what it expects to find.** *Memory is wrong in some way that nobody thought of.* So each record is
//! compared by generation before anything of a batch is written, and a mismatch reloads the network. Blocks are compared as
//! blocks: an address inside one has no record of its own. Shown by `without_token_and_expectations_an_address_has_two_holders`.
//!
//! **Memory never runs on after doubt.** *Not applied* is sent again, in order, for two seconds; then, and where the
//! outcome is unknown, what was decided on that memory is given up, refusals and reads included, and loaded anew. Nothing of
//! it ever leaves. [`actors::committer`](crate::actors::committer); shown by `whichever_commit_fails_answers_and_store_agree`.
//!
//! **Confirming is not committing.** *WAIT between commits holds up each of them; on a connection that wrote nothing it
//! says yes to nothing.* So there are two connections: one commits, the other writes a mark behind all that is to be confirmed
//! and waits once. Shown by `without_confirmation_something_acknowledged_is_lost`.
//!
//! **k replicas, or the own disk.** *One of two replicas is gone for the night: nothing is granted until morning, or the
//! second failover loses what was told meanwhile.* Below k nothing is acknowledged; where an operator allows it
//! (`store.redis_degrade`), what the others have and the disk of the owner has, too, is, and every place that shows the register
//! shows that. k has no other default than 0: what may be promoted is not what is connected, and only an operator knows it.
//! Shown by `with_too_few_replicas_nothing_is_acknowledged_until_they_are_there` and
//! `what_a_node_acknowledged_without_its_replica_survives_the_primary_and_the_process`.
//!
//! **Healing only on one's own line.** *B acknowledged 100 to 110; the register goes back to 98; C takes over and grants
//! the same addresses; B comes back and sees a head further on: for it nothing went back.* So each head names its token,
//! its number and a digest of all before it. What is on an owner's own line is played again, byte for byte; what is not becomes
//! a *late journal*: claims that the present owner gives back where address and slot are free. Where they are not, the network
//! has a conflict and grants nothing until somebody decides; nobody is put out and nothing is dropped.
//! [`store::late`](crate::store::late); shown by
//! `where_somebody_else_came_in_between_nothing_is_played_and_what_is_missing_is_put_aside`.
//!
//! **Generations never repeat.** The next one is above all that is stored, and above the clock's seconds times 2^20: both
//! must fail to repeat one. [`actors::generations`](crate::actors::generations).
//!
//! **Leases and cooldowns err late only.** *The new owner's clock is ten minutes ahead, and all short leases end.* So a
//! shard has a time of its own, stored with each batch, that follows the boot clock and stands still while nothing can be
//! committed; after a take-over or an outage no lease ends before its holder was served for thirty seconds, in which it could be
//! renewed. Nobody renews what cools, nor what was not granted yet: neither waits for that. [`actors::clock`](crate::actors::clock);
//! shown by `a_register_whose_clock_leaps_confuses_nobody`,
//! `no_lease_runs_between_the_take_over_and_the_moment_from_which_it_can_be_renewed` and
//! `behind_a_disk_that_was_full_what_cools_and_what_is_leased_anew_ends_in_time`.
//!
//! **Leases say who may try, tokens who may write.** A register is taken over when it was let go, when its lease ran out by
//! the store's time, or when it is handed over. Two live nodes of one name: the second is refused, and so is one without the
//! secret beside others. Nodes do not contend in step; one that was replaced lets others go first for two leases and some more, but
//! only those that were seen within three seconds, so that no outage is longer for it. An owner that most others do not reach
//! hands over by itself where another node is reached better. [`serve`](crate::serve); shown by
//! `a_node_that_was_stopped_past_its_lease_and_woken_neither_grants_nor_repeats_a_grant`,
//! `a_node_without_the_secret_is_refused_beside_others_and_never_takes_their_register` and
//! `an_owner_that_the_other_nodes_do_not_reach_hands_the_register_to_one_that_they_do`.
//!
//! **Who takes over in order loads beside.** The successor loads while the owner serves, then reads what is left: the
//! pause does not grow with the register. What clients feel is bounded by ten seconds
//! ([`HANDOVER_HOLD_MS`](crate::limits::HANDOVER_HOLD_MS)); getting ready before, which nobody waits for, by two minutes: less
//! would keep a large register on a slow machine from being handed over at all. [`actors::standby`](crate::actors::standby);
//! shown by `a_node_is_drained_under_load_and_no_client_is_put_off` and
//! `what_is_held_for_a_hand_over_that_never_comes_is_answered_within_ten_seconds`.
//!
//! **Order while forwarding.** Requests of one connection for one network are under way at one owner only: when the role
//! changes, newer ones are held until the older ones are answered. [`server::role`](crate::server::role).
//!
//! **Widen first, narrow last.** *A crash between two commits leaves the space of a network guarded by nobody.* So what
//! grows is noted in the catalog before it is committed, what shrinks after: at any time the catalog covers at least what
//! networks have. [`actors::directory`](crate::actors::directory).
//!
//! **Several networks change together or not at all.** All of them are held, each decides, and their steps become one
//! group, which the store applies whole; so no participant is ever in doubt by itself. It takes a store that commits shards
//! together: the embedded one, or a register in one slot of a Redis cluster. [`actors::coordinator`](crate::actors::coordinator);
//! shown by `without_whole_commits_half_of_an_act_is_there`.
//!
//! **A copy is not the register.** *A restored register gives what was granted since the copy was made.* So it has a new
//! identity, generations above all that can have been given, and chooses no address before somebody says that what is in use
//! was claimed. A register that was moved refuses its old place for ever.
