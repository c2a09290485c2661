"""A ROS 2 node that drives a robot by an exported policy, without Echelon or torch. `policy.py` lies beside it.

    ros2 run ... or: python ros2_node.py --ros-args -p policy:=policy.npz

Subscribes to joint_states, imu (orientation and angular velocity of the base), odom (its linear velocity, in its own
frame) and cmd_vel; publishes controls in the order of the file's actuators on commands, as ros2_control's
forward_command_controller takes them. Position controls are the targets of servos with the stiffness and damping that
the file states. Nothing is published before every message that the policy needs has come, nor when the newest one is
older than `timeout`. Not run where this was written: try it in simulation, then with the robot off the ground.
"""

import numpy as np
import rclpy
from geometry_msgs.msg import Twist
from nav_msgs.msg import Odometry
from policy import Policy
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Float64MultiArray

NEEDED = {"joint": "joints", "base linear velocity": "odom", "base angular velocity": "imu", "gravity direction": "imu"}


class PolicyNode(Node):
    def __init__(self):
        super().__init__("policy")
        self.policy = Policy(self.declare_parameter("policy", "policy.npz").value)
        self.timeout = float(self.declare_parameter("timeout", 0.1).value)
        quantities = [part["quantity"] for part in self.policy.layout]
        self.needed = {word for name, word in NEEDED.items() if any(name in quantity for quantity in quantities)}
        self.newest, self.times, self.command = {}, {}, np.zeros(3)
        ranges = [x["range"] or [-np.inf, np.inf] for x in self.policy.facts["actuators"]]
        self.low, self.high = np.array(ranges).T
        for name, kind, topic in (
            ("joints", JointState, "joint_states"),
            ("imu", Imu, "imu"),
            ("odom", Odometry, "odom"),
        ):
            self.create_subscription(kind, topic, lambda x, name=name: self.keep(name, x), qos_profile_sensor_data)
        self.create_subscription(Twist, "cmd_vel", self.take_command, 1)
        self.publisher = self.create_publisher(Float64MultiArray, "commands", 1)
        self.create_timer(1 / self.policy.rate, self.step)

    def keep(self, name, message):
        self.newest[name], self.times[name] = message, self.get_clock().now()

    def take_command(self, twist):
        self.command = np.array([twist.linear.x, twist.linear.y, twist.angular.z])

    def read(self, quantity, names):
        """The newest value of a quantity, one number per name, in the units of the file's layout."""
        if "joint" in quantity:
            joints = self.newest["joints"]
            values = joints.velocity if quantity == "joint velocity" else joints.position
            by_name = dict(zip(joints.name, values, strict=True))  # their order here may differ from the policy's
            function = {"sine of joint position": np.sin, "cosine of joint position": np.cos}.get(quantity, float)
            return [function(by_name[name]) for name in names]
        if quantity == "base linear velocity":
            return [getattr(self.newest["odom"].twist.twist.linear, axis) for axis in names]
        if quantity == "base angular velocity":
            return [getattr(self.newest["imu"].angular_velocity, axis) for axis in names]
        if quantity == "gravity direction":
            q = self.newest["imu"].orientation
            x, y, z = 2 * (q.w * q.y - q.x * q.z), -2 * (q.y * q.z + q.w * q.x), 2 * (q.x * q.x + q.y * q.y) - 1
            return [{"x": x, "y": y, "z": z}[axis] for axis in names]
        if quantity == "command":
            return [self.command[["forward", "left", "turn"].index(name)] for name in names]
        raise KeyError(f"no topic has the {quantity}")

    def step(self):
        now = self.get_clock().now()
        ages = [(now - self.times[name]).nanoseconds * 1e-9 for name in self.needed & set(self.times)]
        if len(ages) < len(self.needed) or max(ages, default=0.0) > self.timeout:
            self.policy.reset()
            return
        control = np.clip(self.policy.control(self.read), self.low, self.high)
        self.publisher.publish(Float64MultiArray(data=control.astype(float).tolist()))


def main():
    rclpy.init()
    rclpy.spin(PolicyNode())


if __name__ == "__main__":
    main()
