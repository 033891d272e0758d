//! The recordings that the demo's producer sells and its handler knows.

/// One recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Recording {
    /// Its ISRC: country, registrant, year, number.
    pub(super) isrc: &'static str,
    /// Its title.
    pub(super) title: &'static str,
    /// Who wrote it, as IPI name numbers.
    pub(super) writers: [&'static str; 2],
}

const fn recording(
    isrc: &'static str,
    title: &'static str,
    writers: [&'static str; 2],
) -> Recording {
    Recording { isrc, title, writers }
}

/// All of them.
pub(super) const CATALOGUE: [Recording; 12] = [
    recording("DEUM72600117", "Hafenlicht", ["00274918832", "00311750421"]),
    recording("DEA812503340", "Kalte Sonne", ["00274918832", "00560213907"]),
    recording("GBAYE2500812", "Paper Lanterns", ["00118840275", "00402963318"]),
    recording("GBKPL2601903", "North Circular", ["00118840275", "00733019264"]),
    recording("USRC12600455", "Second Avenue", ["00355127940", "00617408833"]),
    recording("USQX92502271", "Slow Telegraph", ["00355127940", "00290866174"]),
    recording("FRZ032600098", "La Mer du Nord", ["00481730056", "00225594801"]),
    recording("FR9W12504617", "Sans Adresse", ["00481730056", "00693317750"]),
    recording("SEYOK2600731", "Vinterljus", ["00507724119", "00340918265"]),
    recording("NLB632501586", "Achter de Dijk", ["00639205477", "00184470923"]),
    recording("JPP302600264", "Amayadori", ["00712563380", "00451289906"]),
    recording("BRBMG2503829", "Maré Alta", ["00266730194", "00598142073"]),
];

/// The only recording whose ISRC begins like this.
pub(super) fn beginning_with(isrc: &str) -> Option<&'static Recording> {
    let mut found = CATALOGUE.iter().filter(|recording| recording.isrc.starts_with(isrc));
    match (found.next(), found.next()) {
        (Some(only), None) => Some(only),
        (None | Some(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recording_is_found_by_the_first_nine_characters() {
        for recording in &CATALOGUE {
            assert_eq!(recording.isrc.len(), 12);
            let beginning: String = recording.isrc.chars().take(9).collect();
            assert_eq!(beginning_with(&beginning), Some(recording));
        }
        assert_eq!(beginning_with(""), None);
        assert_eq!(beginning_with("XX"), None);
    }
}
