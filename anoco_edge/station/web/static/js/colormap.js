// The color scale of anoco_edge/reporting/colormap.py from 0 to twice the threshold; a test compares them.

const HEX = [
  "1a0c461b0c471d0d481e0d481f0d49200e4a220e4b230e4c240f4c260f4d270f4e28104f29104f2b10502c10512d1152",
  "2f11533011533111543312553412563512573712583813583913593a135a3c135b3d135c3e145c40145d41145e42145f",
  "4414604514604715614815624915634b15644c15654d15654f156650156751166853166954166956166a57166b58166c",
  "5a166d5b166e5d166e5e166f5f16706116716216726416736516736616746816756916766b16776c16786d16796f1679",
  "70167a721779731879741978761978771a77781b777a1c767b1c757d1d757e1d747f1e74811f73821f72842072852071",
  "86207188217089216f8b226f8c226e8e226d8f236d90236c92236b93246b95246a9624699825699925689b25679c2566",
  "9e25669f2665a12664a22663a42663a52662a72661a82660aa265fab275fad275eae275db0275cb1275bb3275ab42759",
  "b62758b72758b92757ba2656bc2655be2654bf2653c12652c22651c4264fc5254ec7254dc8254cca254bcc244acd2449",
  "ce2548cf2748d02947d02b47d12d47d22f46d23046d33246d43445d43545d53745d63844d63a44d73c44d83d43d83f43",
  "d94042da4142da4341db4441dc4641dc4740dd4840dd4a3fde4b3fdf4c3edf4e3ee04f3de1503de1523ce2533be3543b",
  "e3553ae4573ae55839e55938e65a38e75b37e75d36e85e36e85f35e96034ea6133ea6332eb6431ec6531ec6630ed672f",
  "ed692eee6a2def6b2cef6c2bf06d2af16e28f17027f27126f27225f37323f47422f47520f5761ef6771df6791bf77a19",
  "f77b18f77d19f87e1af87f1af8811bf8821bf9841cf9851df9871df9881ef9891efa8b1ffa8c1ffa8e20fa8f21fa9021",
  "fb9222fb9322fb9423fb9623fb9724fb9924fc9a25fc9b25fc9d26fc9e26fc9f27fca128fda228fda329fda529fda62a",
  "fda72afda92bfdaa2bfdab2cfead2cfeae2dfeaf2dfeb12efeb22efeb32ffeb52ffeb630feb730feb931feba31ffbb32",
  "ffbc32ffbe33ffbf33ffc034ffc234ffc335ffc435ffc636ffc736ffc837ffca37ffcb38ffcc38ffcd39ffcf39ffd03a",
].join("");

/** Red, green and blue of 256 steps. */
export const COLORS = Uint8Array.from({ length: 768 }, (_, at) => Number.parseInt(HEX.slice(2 * at, 2 * at + 2), 16));

const OPAQUE = 0.62;

/** Return red, green, blue and opacity (0 to 255) of a score as multiple of the threshold. */
export function heat(ratio) {
  const fraction = Number.isFinite(ratio) ? Math.max(0, Math.min(1, ratio / 2)) : 0;
  const step = Math.round(fraction * 255) * 3;
  // The noise of good parts stays almost clear and the threshold is well covered.
  const rise = Math.min(fraction / 0.75, 1);
  return [COLORS[step], COLORS[step + 1], COLORS[step + 2], Math.round(255 * OPAQUE * rise * rise * (3 - 2 * rise))];
}
