//! A target in which a move was begun already: it may go on if it is the same register, however its place is written.

use super::*;

/// Leaves what a move leaves that got no further than its first step.
fn begun(target: &Place, from: Origin) {
    wait(target.open(3, Opening::Target { from }).unwrap().close());
}

fn origin(source: &Place) -> Origin {
    let source = source.open(1, Opening::Source).unwrap();
    wait(source.close());
    migrate::origin(&*source)
}

#[test]
fn a_move_goes_on_from_what_the_same_register_left_wherever_that_was_said_to_be_and_from_no_other_one() {
    let server = Server::start(&[]).map(Rc::new);
    let targets = |name| {
        let keys = server.as_ref().map(|server| Place::keys(server, name));
        std::iter::once(Place::files()).chain(keys)
    };
    for target in targets("same") {
        let first = Place::files();
        fill(&first, 3);
        begun(&target, Origin { place: "redis://localhost/0, keys `{a}:…`".to_owned(), ..origin(&first) });
        moved(&first, &target, 3).unwrap();
        served(&target, 3);
    }
    for target in targets("other") {
        let first = Place::files();
        fill(&first, 3);
        let here = origin(&first);
        begun(&target, Origin { register: here.register.map(|register| register ^ 1), ..here });
        let said = moved(&first, &target, 3).unwrap_err();
        assert!(said.contains("which held another register then: finish that move first"), "{said}");
    }
    // Written as by releases that did not note which register it is.
    for target in targets("before") {
        let first = Place::files();
        fill(&first, 3);
        begun(&target, Origin { register: None, ..origin(&first) });
        moved(&first, &target, 3).unwrap();
    }
}
