"""AllegroKuka: an Allegro hand on a KUKA arm, or two of them, and a cuboid to bring to goal after goal.

| task | goal | after a success |
|---|---|---|
| `AllegroKukaRegrasping` | a point in the air, to be held for 30 steps | the object is back on the table |
| `AllegroKukaReorientation` | a pose in the air | the next pose, from where the object is |
| `AllegroKukaThrow` | a bucket out of reach | the object is back on the table, the bucket elsewhere |
| `AllegroKukaTwoArmsReorientation` | a pose on either arm's side | the next pose |

The four are in `family`, their common base class in `task`, the reward in `reward`, the settings in `settings`.
"""
