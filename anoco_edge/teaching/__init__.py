"""Teaching a product: adding and removing references, changing settings, calibrating a threshold.

Each change makes one generation. Its features, bank and threshold are computed first, and then
committed together under the product's lock. An error before the commit changes nothing.
"""

from anoco_edge.teaching.drafts import NO_CHANGE, Draft, ProductFields, Settings, TileSettings
from anoco_edge.teaching.new_pictures import NewPicture, unused_name
from anoco_edge.teaching.teacher import ProductChange, Teacher

__all__ = [
    "NO_CHANGE",
    "Draft",
    "NewPicture",
    "ProductChange",
    "ProductFields",
    "Settings",
    "Teacher",
    "TileSettings",
    "unused_name",
]
