"""Teaching a product: adding and removing references, changing settings, calibrating a threshold.

Each change makes one generation. Its features, bank and threshold are computed first, and then
committed together under the product's lock. An error before the commit changes nothing.
"""

from anoco_edge.teaching.augmentation_cost import AugmentationCost, measure_augmentation_cost
from anoco_edge.teaching.calibration_scores import PartScore, read_calibration_scores
from anoco_edge.teaching.drafts import NO_CHANGE, Draft, ProductFields, Settings, TileSettings
from anoco_edge.teaching.dry_run import (
    Effect,
    PastInspection,
    calibration_effects,
    past_effects,
)
from anoco_edge.teaching.from_frames import pictures_from_frames
from anoco_edge.teaching.new_pictures import NewPicture, unused_name
from anoco_edge.teaching.product_change import ProductChange
from anoco_edge.teaching.teacher import Teacher
from anoco_edge.teaching.tuning import TuningOutcome, tune
from anoco_edge.teaching.tuning_trial import TriedSetting

__all__ = [
    "NO_CHANGE",
    "AugmentationCost",
    "Draft",
    "Effect",
    "NewPicture",
    "PartScore",
    "PastInspection",
    "ProductChange",
    "ProductFields",
    "Settings",
    "Teacher",
    "TileSettings",
    "TriedSetting",
    "TuningOutcome",
    "calibration_effects",
    "measure_augmentation_cost",
    "past_effects",
    "pictures_from_frames",
    "read_calibration_scores",
    "tune",
    "unused_name",
]
