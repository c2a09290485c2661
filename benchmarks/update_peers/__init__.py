"""PPO's update as four libraries do it, behind one interface."""
