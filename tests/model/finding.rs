//! What the search found in the documented protocol, each as small as it can be.

use redrive::domain::record::State;

use crate::core::{Core, RecordEvent, RecordStep, Second};

fn wrote(step: RecordStep) -> crate::world::Record {
    let (RecordStep::Write(record) | RecordStep::Finish(record)) = step else {
        panic!("{step:?} writes nothing");
    };
    record
}

/// A worker dies between the ledger and the token; a run takes the record, and the leftover is deleted
/// because the record has moved on. Now the copy is refused: the record "keeps its token", which was
/// never sent, and no message is left to finish the parking. Nothing is lost, but the DLQ's depth does not
/// show the record until a full sweep issues a token, which it can: the record says that none was sent.
#[test]
fn a_record_taken_before_its_token_was_sent_comes_back_without_one() {
    let mut core = Core::new(Second::Other, 2, 0.2);
    let park = RecordEvent::Park { n: 0, run: 0, park: 1, again: false, put: true };
    let parked = wrote(core.record(None, park));
    let taken = wrote(core.record(Some(parked), RecordEvent::Take { run: 1, cap: 3 }));
    let leftover = RecordEvent::Park { n: 0, run: 0, park: 2, again: false, put: false };
    assert_eq!(core.record(Some(taken), leftover), RecordStep::DeleteMessage);
    let refused = RecordEvent::SendRefused { run: 1, n: 1, earlier: false };
    let back = wrote(core.record(Some(taken), refused));
    assert_eq!((back.state, back.sent, back.blocked), (State::Quarantined, false, true));
}
